"""ProfileRunner on a Ray cluster: each run is a job of the dashboard's Job API that takes the pool's resource."""

import asyncio
import time
from typing import Any, Final

from pydantic import BaseModel

from partita_api.digests import canonical_json
from partita_api.gpupool import GPUPool
from partita_api.profile import ProfileRequest
from partita_operator.engines.ray_dashboard import DashboardRefusedError, RayDashboard
from partita_operator.ports import ProfileRun, RunPhase
from partita_operator.profiling.outcome import finished_run, log_tail, over_time
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.section import plain
from partita_profiling.result import REQUEST_VARIABLE
from partita_runtime.models.policy import with_policy
from partita_runtime.serving.deploy.stage_arguments import has_gpus

JOBS: Final = "/api/jobs/"
ENTRYPOINT: Final = "python -m partita_profiling"
STOP_SECONDS: Final = 20.0
"""How long `remove` waits for a run to stop."""
LOG_SECONDS: Final = 60.0
"""For how long after the end of a run its log, which contains the result, may be unreadable."""
_POLL_SECONDS: Final = 0.2
_ENDED: Final = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
_FAILED: Final = frozenset({"STOPPED", "FAILED"})
_NAME_TAKEN: Final = "is already taken"
"""Part of Ray's message for a job while an earlier one of the same name is being removed."""
_NO_SUCH_JOB: Final = 404
_SERVER_ERROR: Final = 500


class RayJob(BaseModel):
    """A job as the dashboard shows it; times are in Unix milliseconds."""

    status: str
    message: str | None = None
    start_time: float | None
    end_time: float | None

    def seconds(self, now: float) -> float:
        """How long it has run; 0 if it died before its start."""
        until = self.end_time or now * 1000
        return (until - (self.start_time or until)) / 1000

    def seconds_since_end(self, now: float) -> float:
        """How long ago a run that has ended did so; without a time, long ago."""
        return now - (self.end_time or 0) / 1000


class RayJobRunner:
    """Runs profiling on the operator's default Ray cluster."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._dashboard = RayDashboard(settings.ray.address, plain(settings.ray.token))
        self._timeout_seconds = settings.profiling.timeout_seconds
        self._runtime_env = with_policy(dict(settings.runtime_env), settings.models.policy)

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        """Start the run, unless it exists. All namespaces share the runs."""
        submission = submission_id(request.key, attempt)
        found = await self._job(submission)
        if found is not None and found.status in _FAILED:
            await self.remove(namespace, request.key, attempt)  # a leftover
        elif found is not None:
            return
        try:
            await self._dashboard.post(JOBS, job(submission, request, pool, self._runtime_env))
        except DashboardRefusedError:
            # The dashboard has no separate status for a run that another client has already started.
            if await self._job(submission) is None:
                raise

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        """The state of the run. Stops it at its time limit."""
        del namespace
        submission = submission_id(key, attempt)
        found = await self._job(submission)
        if found is None:
            return ProfileRun(RunPhase.ABSENT)
        status, why = found.status, found.message or ""
        if status == "FAILED" and _NAME_TAKEN in why:
            return ProfileRun(RunPhase.ABSENT)
        ended = status in _ENDED
        now = time.time()
        is_over_time = found.seconds(now) > self._timeout_seconds
        if not ended and is_over_time:
            await self._stop(submission)
            return over_time(self._timeout_seconds, why, await self._log(submission) or "")
        if status == "PENDING":
            return ProfileRun(RunPhase.RUNNING, message=f"Waiting for Ray: {why or 'the job is pending'}")
        log = await self._log(submission)
        if not ended:
            return ProfileRun(RunPhase.RUNNING, message=log_tail(log or "", lines=1))
        if status == "STOPPED" and is_over_time:
            return over_time(self._timeout_seconds, "", log or "")
        if log is None and found.seconds_since_end(now) < LOG_SECONDS:
            return ProfileRun(RunPhase.RUNNING, message="The run has ended. Ray cannot read its log yet.")
        if log is None:
            message = f"The run has ended, but Ray cannot read its log. Check that its node still runs. {why}"
            return ProfileRun(RunPhase.FAILED, message=message.rstrip())
        return finished_run(log, why)

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        """Stop the run and delete it.

        A run that waits for resources cannot be deleted. Ray stops it once it has found them or has given up. After a
        deletion Ray may write the run again, when it notices the end of the run's actor.
        """
        del namespace
        submission = submission_id(key, attempt)
        deadline, was_deleted = time.monotonic() + STOP_SECONDS, False
        while time.monotonic() < deadline:
            found = await self._job(submission)
            if found is None and not was_deleted:
                return
            if found is None:
                was_deleted = False
                await asyncio.sleep(_POLL_SECONDS)
                continue
            if found.status in _ENDED:
                await self._dashboard.delete(f"{JOBS}{submission}")
                was_deleted = True
                continue
            await self._stop(submission)
            if found.status == "PENDING":
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Closes its connections."""
        await self._dashboard.close()

    async def _job(self, submission: str) -> RayJob | None:
        try:
            return await self._dashboard.get(f"{JOBS}{submission}", RayJob.model_validate)
        except DashboardRefusedError as error:
            if error.status == _NO_SUCH_JOB:
                return None
            raise

    async def _log(self, submission: str) -> str | None:
        """The log; None if Ray cannot read it: the agent of the run's node starts, is overloaded, or is lost."""
        try:
            return await self._dashboard.get(f"{JOBS}{submission}/logs", lambda answer: str(answer.get("logs") or ""))
        except DashboardRefusedError as error:
            if error.status >= _SERVER_ERROR:
                return None
            raise

    async def _stop(self, submission: str) -> None:
        await self._dashboard.post(f"{JOBS}{submission}/stop")


def submission_id(key: str, attempt: int) -> str:
    """The name of a run on the Ray cluster."""
    return f"partita-profile-{key}-{attempt}"


def job(submission: str, request: ProfileRequest, pool: GPUPool, runtime_env: dict[str, Any]) -> dict[str, Any]:
    """The job to submit. It takes one whole accelerator of the pool."""
    variables = {**runtime_env.get("env_vars", {}), REQUEST_VARIABLE: canonical_json(request)}
    return {
        "submission_id": submission,
        "entrypoint": ENTRYPOINT,
        "runtime_env": {**runtime_env, "env_vars": variables},
        "entrypoint_num_cpus": 1,
        "entrypoint_num_gpus": 1 if has_gpus(pool) else 0,
        "entrypoint_resources": {pool.ray_resource: 1},
    }
