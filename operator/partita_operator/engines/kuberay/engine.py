"""ServingEngine through KubeRay: one RayService in each namespace that has sessions.

What Serve should run is in the RayService, which KubeRay writes to Serve; how it runs is asked of the dashboard of
the Ray cluster that serves; whether clients can reach it is what the RayService's conditions say.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lightkube import AsyncClient

from partita_api.gpupool import GPUPool
from partita_operator.engines.frontend_client import Answer, Frontends, session_signals, session_url
from partita_operator.engines.kuberay.rayservice_manifest import (
    LABELS,
    NAME,
    applications_of,
    rayservice,
    says,
    told_config,
    worker_groups,
)
from partita_operator.engines.kuberay.settings import KubeRaySettings
from partita_operator.engines.kuberay.state import (
    SERVE_SERVICE,
    clusters,
    is_ready,
    room,
    scaling,
    standing,
    told_state,
    unlimited,
)
from partita_operator.engines.kuberay.worker_groups import FRONTEND_RESOURCE, pool_group
from partita_operator.engines.ray_dashboard import RayDashboard
from partita_operator.engines.ray_serve import APPLICATIONS, STATE_SECONDS, serving_status
from partita_operator.engines.rollout import FrontendReport, failed_for_long, next_step, wanted_applications
from partita_operator.engines.serve_state import AppConfig, ServeState, UnreadableConfigError, own_configs, read_state
from partita_operator.kube.rayservices import RayServices
from partita_operator.ports import EngineUnavailableError, ServingSpec, ServingStatus, SessionSignals
from partita_runtime.serving.deploy.applications import ServingOptions, frontend_name, parse_application

logger = logging.getLogger(__name__)

_SERVICE: Final = SERVE_SERVICE.format(rayservice=NAME)


@dataclass(frozen=True)
class _Seen:
    """A namespace's RayService and what runs on its Ray cluster."""

    rayservice: Mapping[str, Any] | None
    state: ServeState
    reached: bool
    """Whether the Ray cluster's dashboard answered."""
    at: float


class KubeRayEngine:
    """All RayServices of Partita's; `ServingEngine` says what its methods do."""

    def __init__(
        self,
        client: AsyncClient,
        settings: KubeRaySettings,
        token: str | None = None,
        options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
        namespaces: Collection[str] = (),
    ) -> None:
        self._services = RayServices(client, namespaces)
        self._settings = settings
        self._token = token
        self._options = options.model_copy(update={"frontend_resources": {FRONTEND_RESOURCE: 1.0}})
        self._frontends = Frontends()
        self._dashboards: dict[str, RayDashboard] = {}
        """By namespace."""
        self._changing: dict[str, asyncio.Lock] = {}
        self._last_seen: dict[str, _Seen] = {}
        self._progress: dict[str, str] = {}
        """What the last `apply` of each session said. It is lost with the operator, and the next one says it again."""

    async def apply(self, spec: ServingSpec) -> None:
        """Takes the next step toward what `spec` says; `rollout` decides which."""
        wanted = wanted_applications(spec, self._options)
        key = wanted.session_key
        namespace = _namespace(key)
        async with self._lock(namespace):
            seen = await self._look(namespace)
            answer = await self._ask_frontend(seen, key)
            report = FrontendReport(answer.signals.plan) if answer.signals else None
            step = next_step(wanted, seen.state, report, room(seen.state, spec.pools.values()), time.time())
            self._progress[key] = step.message
            await self._write(namespace, seen, key, step.applications, spec.pools.values())

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""
        seen = await self._look(_namespace(session_key), STATE_SECONDS)
        if seen.rayservice is None or not seen.state.of_session(session_key):
            return ServingStatus()
        status = serving_status(
            session_key,
            seen.state,
            await self._ask_frontend(seen, session_key),
            unlimited(seen.state),
            url=session_url(self._serve_url(_namespace(session_key)), session_key),
            progress=self._progress.get(session_key, ""),
            now=time.time(),
        )
        message = " ".join(filter(None, (standing(seen.rayservice), status.message)))
        return replace(status, frontend_ready=status.frontend_ready and is_ready(seen.rayservice), message=message)

    async def signals(self, session_key: str) -> SessionSignals | None:
        """What the session's frontend measured over the last window; None if there is no frontend that answers."""
        answer = await self._ask_frontend(await self._look(_namespace(session_key), STATE_SECONDS), session_key)
        return session_signals(answer.signals) if answer.signals else None

    async def remove(self, session_key: str) -> bool:
        """Takes the frontend down, and once it has answered its last request, the stages.

        With the last session of a namespace goes its RayService.
        """
        namespace = _namespace(session_key)
        async with self._lock(namespace):
            seen = await self._look(namespace)
            others = [app for name, app in applications_of(seen.rayservice).items() if not _is_of(name, session_key)]
            left = seen.state.of_session(session_key)
            if seen.rayservice is None or (not left and others):
                self._progress.pop(session_key, None)
                return True
            frontend = frontend_name(session_key)
            if frontend not in left and not others:
                logger.info("namespace %s has no session any more: its RayService is deleted", namespace)
                self._last_seen.pop(namespace, None)
                await self._services.delete(namespace, NAME)
                return False
            stages = [app for name, app in own_configs(seen.state, session_key).items() if name != frontend]
            await self._write(namespace, seen, session_key, stages if frontend in left else [], ())
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
        """Nothing: how many accelerators a pool has is known of its nodes, and Ray clusters follow."""
        return {}

    async def close(self) -> None:
        """Closes all connections, but not the client's."""
        await asyncio.gather(self._frontends.close(), *(d.close() for d in self._dashboards.values()))

    def _lock(self, namespace: str) -> asyncio.Lock:
        return self._changing.setdefault(namespace, asyncio.Lock())

    async def _look(self, namespace: str, may_be_old: float = 0.0) -> _Seen:
        known = self._last_seen.get(namespace)
        if known is not None and time.monotonic() - known.at < may_be_old:
            return known
        found = await self._services.get(namespace, NAME)
        serve = await self._ask_serve(namespace, found) if found is not None else None
        seen = _Seen(found, told_state(found, serve), serve is not None, time.monotonic())
        self._last_seen[namespace] = seen
        return seen

    async def _ask_serve(self, namespace: str, found: Mapping[str, Any]) -> ServeState | None:
        """What runs on the Ray cluster that serves; None while none can be asked since it comes up.

        Raises EngineUnavailableError if it should be up.
        """
        services = list(clusters(found).values())
        if not services:
            return None
        dashboard = await self._dashboard(namespace, services[0])
        try:
            return read_state(await dashboard.get(APPLICATIONS))
        except EngineUnavailableError:
            if is_ready(found) and found["metadata"].get("deletionTimestamp") is None:
                raise
            return None

    async def _dashboard(self, namespace: str, service: str) -> RayDashboard:
        url = self._settings.dashboard_url.format(service=service, namespace=namespace)
        known = self._dashboards.get(namespace)
        if known is None or known.address != url.rstrip("/"):
            self._dashboards[namespace] = RayDashboard(url, self._token)
            if known is not None:
                await known.close()
        return self._dashboards[namespace]

    async def _write(
        self,
        namespace: str,
        seen: _Seen,
        session_key: str,
        applications: Sequence[AppConfig],
        pools: Iterable[GPUPool],
    ) -> None:
        """Makes these the session's applications, unless they are, and gives them the pods that they need."""
        others = [app for name, app in applications_of(seen.rayservice).items() if not _is_of(name, session_key)]
        groups = [pool_group(pool, self._settings) for pool in pools]
        manifest = rayservice(namespace, [*others, *applications], groups, seen.rayservice, self._settings)
        present = seen.rayservice
        if present is None or not says(present["spec"], manifest["spec"]):
            self._last_seen.pop(namespace, None)
            present = await self._services.apply(manifest)
        elif seen.reached and any(failed_for_long(app, time.time()) for app in seen.state.applications.values()):
            # KubeRay writes a configuration to Serve only where it has changed; Serve tries again what it is told.
            await self._dashboards[namespace].put(APPLICATIONS, told_config(present))
        for name in clusters(present):
            cluster = await self._services.cluster(namespace, name)
            operations = scaling(cluster, worker_groups(present)) if cluster is not None else []
            if operations:
                await self._services.patch_cluster(namespace, name, operations)

    async def _ask_frontend(self, seen: _Seen, session_key: str) -> Answer:
        frontend = seen.state.applications.get(frontend_name(session_key))
        if frontend is None or frontend.ready == 0:
            return Answer(None)
        return await self._frontends.ask(self._serve_url(_namespace(session_key)), session_key)

    def _serve_url(self, namespace: str) -> str:
        """Where clients reach the HTTP proxies."""
        return self._settings.serve_url.format(service=_SERVICE, namespace=namespace)


def _namespace(session_key: str) -> str:
    return session_key.partition("/")[0]


def _is_of(name: str, session_key: str) -> bool:
    parsed = parse_application(name)
    return parsed is not None and parsed.session_key == session_key
