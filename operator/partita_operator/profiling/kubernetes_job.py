"""ProfileRunner on Kubernetes: each run is a batch/v1 Job on the pool's nodes. Its log contains the result."""

from datetime import UTC, datetime
from typing import Final

from partita_api.gpupool import GPUPool
from partita_api.profile import ProfileRequest
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.devices import DeviceClaims
from partita_operator.kube.errors import ApiError, is_conflict, is_missing
from partita_operator.kube.resources import JobResource, PodResource, equal
from partita_operator.kube.retries import retried
from partita_operator.pod_templates.start_problems import IMAGE_REASONS, STARTING, object_problem, waiting_containers
from partita_operator.ports import ProfileRun, RunPhase
from partita_operator.profiling.kubernetes_job_manifest import CONTAINER, job_manifest, job_name
from partita_operator.profiling.outcome import finished_run, log_tail, over_time
from partita_operator.settings.model import ProfilingSettings
from partita_profiling.result import MOST_RESULT_BYTES
from partita_runtime.models.policy import ModelPolicy

JOB_NAME_LABEL: Final = "job-name"
TAIL_LINES: Final = 50
"""Lines to read from the end of a log. Container runtimes store a line in parts of 16 KiB, and each of them counts."""
MOST_LOG_BYTES: Final = 2 * MOST_RESULT_BYTES
_IMAGE: Final = (
    "profiling.image of the chart (if that is empty, kuberay.image), or spec.podTemplate.image of the "
    "session or the pool"
)
_PERMANENT: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons of a waiting container that are permanent."""


class KubernetesJobRunner:
    """Runs profiling in Jobs in the session's namespace."""

    def __init__(
        self,
        client: KubernetesClient,
        image: str,
        settings: ProfilingSettings,
        policy: ModelPolicy = ModelPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        self._client = client
        self._claims = DeviceClaims(client)
        self._image = image
        self._settings = settings
        self._policy = policy

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        """Start the run, unless it exists. A failed one is removed; the next call starts it."""
        manifest = job_manifest(
            namespace,
            request,
            pool,
            attempt,
            image=self._image,
            settings=self._settings,
            policy=self._policy,
        )
        await self._claims.offer(namespace, pool)
        try:
            await self._client.create(JobResource, manifest)
        except ApiError as error:
            if not is_conflict(error):
                raise
            run = await self.observe(namespace, request.key, attempt)
            if run.phase is RunPhase.FAILED:
                await self.remove(namespace, request.key, attempt)

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        """The state of the run."""
        name = job_name(key, attempt)
        try:
            job = await retried(lambda: self._client.get(JobResource, name, namespace))
        except ApiError as error:
            if is_missing(error):
                return ProfileRun(RunPhase.ABSENT)
            raise
        ended = _ended(job)
        pod = await self._pod(namespace, name)
        log = await self._log(pod)
        if ended is None:
            return unfinished_run(pod, log, datetime.now(UTC))
        if ended["type"] == "Failed" and ended.get("reason") == "DeadlineExceeded":
            return over_time(self._settings.timeout_seconds, "", log)
        return finished_run(log, why=_why(ended, pod))

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        """Stop the run and delete its Job and pods."""
        name = job_name(key, attempt)
        try:
            await retried(lambda: self._client.delete(JobResource, name, namespace, propagation="Background"))
        except ApiError as error:
            if not is_missing(error):
                raise

    async def _pod(self, namespace: str, job: str) -> Document | None:
        """The run's newest pod; there are several if a node was lost."""
        pods = await self._client.list(PodResource, namespace, labels=equal({JOB_NAME_LABEL: job}))
        return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)

    async def _log(self, pod: Document | None) -> str:
        """The end of the pod's log; empty if it has none, or its node does not answer."""
        if pod is None:
            return ""
        meta = pod["metadata"]
        try:
            return await self._client.log(
                meta["name"],
                meta["namespace"],
                container=CONTAINER,
                tail_lines=TAIL_LINES,
                limit_bytes=MOST_LOG_BYTES,
            )
        except ApiError:
            return ""


def _ended(job: Document) -> Document | None:
    """The condition that says that the Job has ended, if it has."""
    conditions: list[Document] = (job.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


def unfinished_run(pod: Document | None, log: str, now: datetime) -> ProfileRun:
    """A run whose Job has not ended: what its pod waits for, or the last line of its log."""
    status = (pod or {}).get("status")
    if not status:
        return ProfileRun(RunPhase.RUNNING, message="Waiting until its pod is created.")
    waiting = [state for _, state in waiting_containers(pod or {})]
    for state in waiting:
        reason = state.get("reason")
        words = f"{reason}: {state.get('message') or 'no message'}"
        if reason in _PERMANENT:
            return ProfileRun(RunPhase.FAILED, message=f"{words}. Set {_IMAGE} to an image that exists.")
        if reason in IMAGE_REASONS:
            advice = f"Check {_IMAGE}, and that the node may pull it."
            return _waits(f"{words}. {advice}")
        if reason not in STARTING:
            return _waits(words)
    if problem := object_problem(pod or {}, now):
        return _waits(f"{problem}.")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            advice = (
                "Check the pool's nodeSelector, resourceName, devices and podTemplate, the session's podTemplate, and "
                "that one of the pool's accelerators is free."
            )
            return _waits(f"Waiting for a node: {condition.get('message')}. {advice}")
    if status.get("phase") == "Pending" and not waiting:
        return ProfileRun(RunPhase.RUNNING, message="Waiting for a node.")
    return ProfileRun(RunPhase.RUNNING, message=log_tail(log, lines=1))


def _waits(message: str) -> ProfileRun:
    return ProfileRun(RunPhase.RUNNING, message=message, waits=True)


def _why(ended: Document, pod: Document | None) -> str:
    """Kubernetes' reason for the end of a run."""
    for state in _container_states(pod):
        if terminated := state.get("terminated"):
            return f"{terminated.get('reason') or 'ended'}, exit code {terminated['exitCode']}"
    if pod is None:
        return f"{ended.get('reason') or ended['type']}; its pod was deleted"
    status = pod.get("status") or {}
    return str(status.get("message") or status.get("reason") or ended.get("message") or "")


def _container_states(pod: Document | None) -> list[Document]:
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return [status.get("state") or {} for status in statuses]
