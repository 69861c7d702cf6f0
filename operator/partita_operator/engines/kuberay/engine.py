"""ServingEngine through KubeRay: one RayService in each namespace that has sessions.

The RayService contains the applications, and KubeRay writes them to Serve. The dashboard of the Ray cluster that serves
shows how they run. The RayService's conditions show whether clients can reach them.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from partita_api.pool.ray_resource import shared_resource, with_digest
from partita_operator.engines.app_config import AppConfig, demand_of
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.frontend_client import FrontendAnswer, FrontendClient, serving_signals, session_url
from partita_operator.engines.kuberay.authentication import REPLACE_FOR_TOKEN, authenticates, has_token, tls_files
from partita_operator.engines.kuberay.backend import reports_ports, session_backend
from partita_operator.engines.kuberay.budget_writer import BudgetWriter
from partita_operator.engines.kuberay.disruption_budgets import disruption_budgets
from partita_operator.engines.kuberay.pod_numbers import grows, pods_elsewhere, scaling
from partita_operator.engines.kuberay.pod_remarks import misses_replicas, missing_frontend_pod, pod_remarks, pods_of
from partita_operator.engines.kuberay.ray_secrets import RaySecrets
from partita_operator.engines.kuberay.rayservice_manifest import (
    LABELS,
    NAME,
    applications_of,
    present_serve_config,
    rayservice,
    while_groups_are_appended,
    worker_groups,
)
from partita_operator.engines.kuberay.redis_check import RedisCheck
from partita_operator.engines.kuberay.state import (
    cluster_of_clients,
    clusters,
    configured_state,
    explanation,
    is_ready,
    is_replaced,
    reachable_capacity,
    serve_service,
    serving_cluster,
    unlimited,
)
from partita_operator.engines.kuberay.worker_groups import (
    FRONTEND_RESOURCE,
    SessionPods,
    WorkerGroup,
    frontend_group,
    frontend_group_name,
    pool_group,
)
from partita_operator.engines.monitoring_tokens import MonitoringTokens, with_monitoring_token
from partita_operator.engines.ray_dashboard import DashboardRefusedError, RayDashboard
from partita_operator.engines.rollout import (
    LATE_REPLICA_SECONDS,
    FrontendReport,
    RolloutTarget,
    failed_for_long,
    needs_other_pods,
    next_step,
    rollout_target,
)
from partita_operator.engines.serve_state import (
    APPLICATIONS_PATH,
    ServeState,
    UnreadableConfigError,
    read_state,
)
from partita_operator.engines.session_status import serving_status
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.devices import DeviceClaims
from partita_operator.kube.rayservices import RayServices
from partita_operator.pod_templates.frontend_pods import FrontendPods
from partita_operator.ports import (
    EngineUnavailableError,
    Remark,
    ServingSignals,
    ServingSpec,
    ServingStatus,
    SessionBackend,
)
from partita_operator.reconcile.object_changes import contains
from partita_operator.settings.kuberay import KubeRaySettings, RayAuthentication
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_name, parse_application

logger = logging.getLogger(__name__)

Document = Mapping[str, Any]

_MOST_BYTES: Final = 8 << 20
"""Of an answer of a Ray cluster of one namespace."""
STATE_SECONDS: Final = 1.0
"""How old a reading may be if no change is based on it."""
BUDGET_SECONDS: Final = 10.0
"""Least time between two checks of a namespace's PodDisruptionBudgets."""
_SCALING_ATTEMPTS: Final = 5
"""KubeRay and Ray's autoscaler write the RayCluster, too."""


@dataclass(frozen=True)
class _NamespaceState:
    """A namespace's RayService and what runs on its Ray cluster."""

    rayservice: Document | None
    state: ServeState
    reached: bool
    """Whether the Ray cluster's dashboard answered."""
    at: float
    """When it was read, by the monotonic clock."""


class KubeRayEngine:
    """All RayServices of Partita. `ports.ServingEngine` describes the methods."""

    def __init__(
        self,
        client: KubernetesClient,
        settings: KubeRaySettings,
        options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
        namespaces: Collection[str] = (),
        monitoring: MonitoringTokens | None = None,
    ) -> None:
        """Without `monitoring` tokens it makes its own, which are others after a restart."""
        self._services = RayServices(client, namespaces)
        self._budgets = BudgetWriter(client, LABELS)
        self._claims = DeviceClaims(client)
        self._settings = settings
        self._secrets = RaySecrets(client, settings)
        self._redis = RedisCheck(settings)
        self._options = options
        self._monitoring = monitoring or MonitoringTokens()
        self._frontends = FrontendClient(self._monitoring)
        self._dashboards: dict[str, RayDashboard] = {}
        """By namespace."""
        self._changing: dict[str, asyncio.Lock] = {}
        self._growing = asyncio.Lock()
        """Namespaces take accelerators of a pool one after the other."""
        self._last_read: dict[str, _NamespaceState] = {}
        self._budget_problems: dict[str, tuple[str, float]] = {}
        """Errors of the last check of a namespace's PodDisruptionBudgets, and when it was."""
        self._progress: dict[str, str] = {}
        """The message of the last roll-out step, by session. A restarted operator has it after its first `apply`."""

    async def apply(self, spec: ServingSpec) -> None:
        """Takes the next step of the roll-out toward `spec`."""
        frontends = FrontendPods.of(spec.session.spec, spec.request_log)
        namespace = spec.session.namespace
        own = self._options_with(namespace, frontends)
        target = rollout_target(spec, await with_monitoring_token(own, self._monitoring, namespace))
        key = target.session_key
        async with self._lock(namespace):
            found = await self._read(namespace)
            answer = await self._frontend_answer(found, key)
            report = FrontendReport(answer.signals.plan) if answer.signals else None
            capacity = reachable_capacity(found.state, spec.pools.values())
            late = inf if any(pool.status.pending for pool in spec.pools.values()) else LATE_REPLICA_SECONDS
            missing = await self._missing_pod(target, found, frontends)
            step = next_step(target, found.state, report, capacity, time.time(), late, missing)
            self._progress[key] = step.message
            present = demand_of(step.deployments[target.frontend["name"]])
            awaited = [target.frontend] if present.each != demand_of(target.frontend).each else []
            pods = SessionPods(spec.pools.values(), frontends, awaited, spec.departing_nodes)
            running = await self._write(namespace, found, key, step.deployments, pods)
            await self._write_budgets(namespace, found.rayservice, running)

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""
        found = await self._read(_namespace(session_key), STATE_SECONDS)
        if found.rayservice is None or not found.state.of_session(session_key):
            return ServingStatus()
        status = serving_status(
            session_key,
            found.state,
            await self._frontend_answer(found, session_key),
            unlimited(found.state),
            url=session_url(self._serve_url(found.rayservice), session_key),
            progress=self._progress.get(session_key, ""),
            now=time.time(),
        )
        message = " ".join(filter(None, (explanation(found.rayservice), status.message)))
        budget_problem, _ = self._budget_problems.get(_namespace(session_key), ("", 0.0))
        redis_problem = await self._redis.problem(_namespace(session_key))
        texts = (redis_problem, self._token_remark(found.rayservice), budget_problem.removesuffix("."))
        remarks = [Remark(text) for text in texts if text]
        replaced = is_replaced(found.rayservice)
        if replaced or not is_ready(found.rayservice) or misses_replicas(found.state, session_key):
            pods = pods_of(found.state, session_key, await self._pods(found.rayservice))
            remarks += pod_remarks(pods, datetime.now(UTC), replaced)
        return replace(
            status,
            # Without a cluster that serves there is no Service for clients yet.
            frontend_ready=status.frontend_ready
            and is_ready(found.rayservice)
            and bool(serving_cluster(found.rayservice)),
            message=message,
            remarks=(*status.remarks, *remarks),
        )

    async def signals(self, session_key: str) -> ServingSignals | None:
        """What the session's frontend measured over the last window; None if no frontend answers."""
        answer = await self._frontend_answer(await self._read(_namespace(session_key), STATE_SECONDS), session_key)
        return serving_signals(answer.signals) if answer.signals else None

    async def ask(self, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        """Status and body of the plan's answer to a sample."""
        found = await self._read(_namespace(session_key), STATE_SECONDS)
        if found.rayservice is None:
            raise EngineUnavailableError("There is no Ray cluster yet.")
        return await self._frontends.ask(self._serve_url(found.rayservice), session_key, plan, sample)

    async def backend(self, session_key: str, serving: ServingStatus | None) -> SessionBackend | None:
        """The pods of the session, also while the Ray cluster's dashboard does not answer."""
        namespace = _namespace(session_key)
        known = self._last_read.get(namespace)
        if known is not None and time.monotonic() - known.at < STATE_SECONDS:
            found = known.rayservice
        else:
            found = await self._services.get(namespace, NAME)
        cluster = cluster_of_clients(found)
        pods = await self._services.pods(namespace, cluster) if cluster and reports_ports(serving) else ()
        return session_backend(session_key, found, serving, pods)

    async def remove(self, session_key: str) -> bool:
        """Removes the frontend, then, once it has answered its last request, the stages.

        The RayService is deleted with the last session of its namespace, and the namespace's Secret after it.
        """
        namespace = _namespace(session_key)
        async with self._lock(namespace):
            found = await self._read(namespace)
            others = applications_of(found.rayservice).of_others(session_key)
            left = found.state.of_session(session_key)
            if found.rayservice is None or (not left and others):
                self._progress.pop(session_key, None)
                return True
            frontend = frontend_name(session_key)
            if frontend not in left and not others:
                logger.info("deleting the RayService of namespace %s, which has no sessions now", namespace)
                self._last_read.pop(namespace, None)
                self._budget_problems.pop(namespace, None)
                await self._secrets.remove(namespace, await self._services.clusters(LABELS, namespace))
                await self._services.delete(namespace, NAME)
                await self._monitoring.forget(namespace)
                return False
            stages = found.state.deployments(session_key).without({frontend})
            await self._write(namespace, found, session_key, stages if frontend in left else Deployments())
            return False

    async def sessions(self) -> frozenset[str]:
        """Keys of all sessions that have applications in a RayService."""
        keys: set[str] = set()
        for found in await self._services.labelled(LABELS):
            try:
                names = applications_of(found)
            except UnreadableConfigError as error:
                logger.warning("%s", error)
                continue
            keys |= {parsed.session_key for name in names if (parsed := parse_application(name))}
        return frozenset(keys)

    async def capacity(self) -> Mapping[str, float]:
        """Nothing: the nodes of a pool say how many accelerators it has, and Ray clusters adapt to that."""
        return {}

    async def close(self) -> None:
        """Closes all connections except the Kubernetes client."""
        await asyncio.gather(self._frontends.close(), *(d.close() for d in self._dashboards.values()))

    def _options_with(self, namespace: str, frontends: FrontendPods) -> ServingOptions:
        """The options of a session whose frontends need these pods."""
        resource = with_digest(FRONTEND_RESOURCE, frontends.digest)
        tls = tls_files(namespace, self._settings)
        return self._options.model_copy(update={"frontend_resources": {resource: 1.0}, "tls": tls})

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._changing.setdefault(namespace, asyncio.Lock())

    async def _read(self, namespace: str, may_be_old: float = 0.0) -> _NamespaceState:
        known = self._last_read.get(namespace)
        if known is not None and time.monotonic() - known.at < may_be_old:
            return known
        found = await self._services.get(namespace, NAME)
        serve = await self._serve_state(namespace, found) if found is not None else None
        read = _NamespaceState(found, configured_state(found, serve), serve is not None, time.monotonic())
        self._last_read[namespace] = read
        return read

    async def _serve_state(self, namespace: str, found: Document) -> ServeState | None:
        """What runs on the Ray cluster that serves; None while the cluster starts and does not answer.

        Raises EngineUnavailableError if it should answer.
        """
        services = list(clusters(found).values())
        if not services:
            return None
        token = await self._secrets.token(namespace)
        dashboard = await self._dashboard(namespace, services[0], token.value if token else None)
        try:
            return await dashboard.get(APPLICATIONS_PATH, read_state)
        except EngineUnavailableError as error:
            if isinstance(error, DashboardRefusedError) and error.refuses_token and not has_token(found, token):
                return None  # The next `apply` gives the RayService the new token, and KubeRay replaces the cluster.
            if is_ready(found) and found["metadata"].get("deletionTimestamp") is None:
                if problem := await self._redis.problem(namespace):
                    raise EngineUnavailableError(f"{problem[:1].upper()}{problem[1:]}. {error}") from error
                raise
            return None

    async def _dashboard(self, namespace: str, service: str, token: str | None) -> RayDashboard:
        url = self._settings.dashboard_url.format(service=service, namespace=namespace)
        known = self._dashboards.get(namespace)
        if known is None or (known.address, known.token) != (url.rstrip("/"), token):
            self._dashboards[namespace] = RayDashboard(url, token, most_bytes=_MOST_BYTES)
            if known is not None:
                await known.close()
        return self._dashboards[namespace]

    async def _write(
        self,
        namespace: str,
        found: _NamespaceState,
        session_key: str,
        deployments: Deployments,
        pods: SessionPods = SessionPods(),  # noqa: B008 - it is frozen
    ) -> dict[str, list[Document]]:
        """Makes these the session's applications, unless they are already, and gives them the pods that they need.

        Returns the pods that there are, by Ray cluster.
        """
        running: dict[str, list[Document]] = {}
        applications = [*applications_of(found.rayservice).of_others(session_key).values(), *deployments.values()]
        for pool in pods.pools:
            await self._claims.offer(namespace, pool)
        async with self._growing:
            manifest = await self._manifest(namespace, applications, pods, found.rayservice)
            present = await self._applied(namespace, found, manifest)
            for name in clusters(present):
                running[name] = await self._scaled(namespace, name, worker_groups(present), pods)
        return running

    async def _scaled(
        self, namespace: str, name: str, groups: Sequence[WorkerGroup], pods: SessionPods
    ) -> list[Document]:
        """Gives a Ray cluster the pods that it needs, and returns those that there are."""
        for _ in range(_SCALING_ATTEMPTS):
            running = await self._services.pods(namespace, name)
            cluster = await self._services.cluster(namespace, name)
            operations = scaling(cluster, groups, running, pods.pools, pods.departing_nodes) if cluster else []
            if not operations or await self._services.patch_cluster(namespace, name, operations):
                return running
        raise EngineUnavailableError(
            f"RayCluster {namespace}/{name} changed during each of {_SCALING_ATTEMPTS} attempts to scale it."
        )

    async def _manifest(
        self,
        namespace: str,
        applications: Sequence[AppConfig],
        pods: SessionPods,
        present: Document | None,
    ) -> dict[str, Any]:
        """The RayService. Pods of all namespaces together are at most as many as the pool's accelerators."""
        token = await self._secrets.ensure(namespace)

        def made(elsewhere: Mapping[str, int]) -> dict[str, Any]:
            groups = [frontend_group(self._settings, pods.frontends)] if pods.frontends.digest else []
            for pool in pods.pools:
                taken = elsewhere.get(shared_resource(pool.ray_resource), 0)
                groups.append(pool_group(pool, self._settings, max(0, pool.status.capacity - taken)))
            return rayservice(namespace, applications, groups, present, self._settings, token, awaited=pods.awaited)

        manifest = made({})
        if not grows(present, manifest):
            return manifest
        return made(pods_elsewhere(await self._services.clusters(LABELS), namespace))

    async def _applied(self, namespace: str, found: _NamespaceState, manifest: dict[str, Any]) -> Document:
        """The RayService as it is after it was written, if it has to be."""
        present = found.rayservice
        if present is not None and not contains(present["spec"], manifest["spec"]):
            for name in clusters(present):
                if (cluster := await self._services.cluster(namespace, name)) is not None:
                    manifest = while_groups_are_appended(manifest, cluster)
        if present is None or not contains(present["spec"], manifest["spec"]):
            self._last_read.pop(namespace, None)
            present = await self._services.apply(manifest)
        elif found.reached and any(failed_for_long(app, time.time()) for app in found.state.applications.values()):
            # KubeRay writes a configuration to Serve only if it has changed. Serve retries the one that it receives.
            await self._dashboards[namespace].put(APPLICATIONS_PATH, present_serve_config(present))
        return present

    async def _write_budgets(
        self, namespace: str, rayservice: Document | None, pods: Mapping[str, list[Document]]
    ) -> None:
        """Limit how many worker pods a drain of nodes removes at a time. Serving does not depend on it."""
        cluster = serving_cluster(rayservice)
        _, checked = self._budget_problems.get(namespace, ("", -inf))
        if rayservice is None or cluster not in pods or time.monotonic() - checked < BUDGET_SECONDS:
            return
        try:
            desired = disruption_budgets(rayservice, pods[cluster], datetime.now(UTC))
            problem = await self._budgets.write(namespace, rayservice["metadata"]["uid"], desired)
        except EngineUnavailableError as error:
            problem = str(error)
        self._budget_problems[namespace] = (problem, time.monotonic())

    async def _frontend_answer(self, found: _NamespaceState, session_key: str) -> FrontendAnswer:
        if found.rayservice is None or found.state.ready_frontend(session_key) is None:
            return FrontendAnswer(None)
        return await self._frontends.signals(self._serve_url(found.rayservice), session_key)

    async def _pods(self, rayservice: Document) -> list[Document]:
        """The pods of the RayService's Ray clusters."""
        namespace = rayservice["metadata"]["namespace"]
        return [pod for name in clusters(rayservice) for pod in await self._services.pods(namespace, name)]

    async def _missing_pod(self, target: RolloutTarget, found: _NamespaceState, frontends: FrontendPods) -> str:
        """Why no pod is ready that the session's frontend can move to; empty if one is, or it needs no other."""
        if found.rayservice is None or not needs_other_pods(target, found.state):
            return ""
        group = frontend_group_name(frontends.digest)
        return missing_frontend_pod(group, await self._pods(found.rayservice), datetime.now(UTC))

    def _token_remark(self, rayservice: Document) -> str:
        """What to do about a Ray cluster that was made before Partita gave it a token."""
        if self._settings.authentication is RayAuthentication.DISABLED or authenticates(rayservice):
            return ""
        return REPLACE_FOR_TOKEN.format(namespace=rayservice["metadata"]["namespace"])

    def _serve_url(self, rayservice: Document) -> str:
        """Where clients reach the HTTP proxies."""
        namespace = rayservice["metadata"]["namespace"]
        return self._settings.serve_url.format(service=serve_service(rayservice), namespace=namespace)


def _namespace(session_key: str) -> str:
    return session_key.partition("/")[0]
