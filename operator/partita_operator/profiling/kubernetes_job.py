"""ProfileRunner on Kubernetes: each run is a batch/v1 Job on the pool's nodes. Its log contains the result."""

from typing import Final, cast

from lightkube import ApiError, AsyncClient
from lightkube.models.batch_v1 import JobCondition
from lightkube.models.core_v1 import ContainerStatus
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType

from partita_api.gpupool import GPUPool
from partita_api.profile import ProfileRequest
from partita_operator.kube.retries import is_missing, retried
from partita_operator.ports import ProfileRun, RunPhase
from partita_operator.profiling.kubernetes_job_manifest import CONTAINER, job_manifest, job_name
from partita_operator.profiling.outcome import finished_run, log_tail, over_time
from partita_runtime.models.policy import ModelPolicy

JOB_NAME_LABEL: Final = "job-name"
TAIL_LINES: Final = 50
_PERMANENT: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons of a waiting container that are permanent."""
_CONFLICT: Final = 409


class KubernetesJobRunner:
    """Runs profiling in Jobs in the session's namespace."""

    def __init__(
        self,
        client: AsyncClient,
        image: str,
        timeout_seconds: int,
        policy: ModelPolicy = ModelPolicy(),  # noqa: B008 - it is frozen
    ) -> None:
        self._client = client
        self._image = image
        self._timeout_seconds = timeout_seconds
        self._policy = policy

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        """Start the run, unless it exists. A failed one is removed; the next call starts it."""
        manifest = job_manifest(
            namespace,
            request,
            pool,
            attempt,
            image=self._image,
            timeout_seconds=self._timeout_seconds,
            policy=self._policy,
        )
        try:
            await self._client.create(cast(Job, Job.from_dict(manifest)))
        except ApiError as error:
            if error.status.code != _CONFLICT:
                raise
            run = await self.observe(namespace, request.key, attempt)
            if run.phase is RunPhase.FAILED:
                await self.remove(namespace, request.key, attempt)

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        """The state of the run."""
        name = job_name(key, attempt)
        try:
            job = await retried(lambda: self._client.get(Job, name, namespace=namespace))
        except ApiError as error:
            if is_missing(error):
                return ProfileRun(RunPhase.ABSENT)
            raise
        ended = _ended(job)
        pod = await self._pod(namespace, name)
        log = await self._log(pod)
        if ended is None:
            return unfinished_run(pod, log)
        if ended.type == "Failed" and ended.reason == "DeadlineExceeded":
            return over_time(self._timeout_seconds, "", log)
        return finished_run(log, why=_why(ended, pod))

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        """Stop the run and delete its Job and pods."""
        name = job_name(key, attempt)
        try:
            await retried(lambda: self._client.delete(Job, name, namespace=namespace, cascade=CascadeType.BACKGROUND))
        except ApiError as error:
            if not is_missing(error):
                raise

    async def _pod(self, namespace: str, job: str) -> Pod | None:
        """The run's newest pod; there are several if a node was lost."""
        pods = [p async for p in self._client.list(Pod, namespace=namespace, labels={JOB_NAME_LABEL: job})]
        return max(pods, key=lambda pod: str(pod.metadata and pod.metadata.creationTimestamp), default=None)

    async def _log(self, pod: Pod | None) -> str:
        """The end of the pod's log; empty if it has none, or its node does not answer."""
        if pod is None or pod.metadata is None or pod.metadata.name is None:
            return ""
        lines = self._client.log(
            pod.metadata.name, namespace=pod.metadata.namespace, container=CONTAINER, tail_lines=TAIL_LINES
        )
        try:
            return "".join([line async for line in lines])
        except ApiError:
            return ""


def _ended(job: Job) -> JobCondition | None:
    """The condition that says that the Job has ended, if it has."""
    conditions = (job.status and job.status.conditions) or []
    return next((c for c in conditions if c.type in ("Complete", "Failed") and c.status == "True"), None)


def unfinished_run(pod: Pod | None, log: str) -> ProfileRun:
    """A run whose Job has not ended: what its pod waits for, or the last line of its log."""
    if pod is None or pod.status is None:
        return ProfileRun(RunPhase.RUNNING, message="Waiting until its pod is created.")
    waiting = [status.state.waiting for status in _containers(pod) if status.state and status.state.waiting]
    for container in waiting:
        words = f"{container.reason}: {container.message or 'no message'}"
        if container.reason in _PERMANENT:
            return ProfileRun(RunPhase.FAILED, message=f"{words}. Set PARTITA_PROFILER_IMAGE to an image that exists.")
        if container.reason in ("ErrImagePull", "ImagePullBackOff"):
            advice = "Check PARTITA_PROFILER_IMAGE, and that the node may pull it."
            return ProfileRun(RunPhase.RUNNING, message=f"{words}. {advice}")
        if container.reason != "ContainerCreating":
            return ProfileRun(RunPhase.RUNNING, message=words)
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            advice = "Check the pool's nodeSelector and resourceName, and that one of its accelerators is free."
            return ProfileRun(RunPhase.RUNNING, message=f"Waiting for a node: {condition.message}. {advice}")
    if pod.status.phase == "Pending" and not waiting:
        return ProfileRun(RunPhase.RUNNING, message="Waiting for a node.")
    return ProfileRun(RunPhase.RUNNING, message=log_tail(log, lines=1))


def _why(ended: JobCondition, pod: Pod | None) -> str:
    """Kubernetes' reason for the end of a run."""
    for status in _containers(pod):
        if status.state and status.state.terminated:
            terminated = status.state.terminated
            return f"{terminated.reason or 'ended'}, exit code {terminated.exitCode}"
    if pod is None:
        return f"{ended.reason or ended.type}; its pod was deleted"
    return (pod.status and (pod.status.message or pod.status.reason)) or ended.message or ""


def _containers(pod: Pod | None) -> list[ContainerStatus]:
    return list((pod and pod.status and pod.status.containerStatuses) or [])
