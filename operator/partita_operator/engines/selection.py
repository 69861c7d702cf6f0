"""The engines that the operator is set up for, and which of them serves a session."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from partita_api.inferencesession import EngineType, InferenceSession
from partita_operator.engines.kuberay.engine import KubeRayEngine
from partita_operator.engines.monitoring_tokens import KeptMonitoringTokens
from partita_operator.engines.ray.clusters import RayClusters, serving_options
from partita_operator.engines.ray.engine import RayServeEngine
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.ports import (
    EngineUnavailableError,
    ServingEngine,
    ServingSignals,
    ServingSpec,
    ServingStatus,
    SessionBackend,
)
from partita_operator.settings.model import OperatorSettings

NO_KUBERAY: Final = "The operator is not set up for KubeRay. Set kuberay.image of the chart, or use engine.type Ray."
NO_RAY: Final = (
    "The operator knows no Ray cluster for sessions that name none. Set ray.address of the chart, or use engine "
    "KubeRay: defaultEngine of the chart, or engine.type of the session."
)
NOT_OFFERED: Final = "The platform does not offer the Ray cluster of spec.engine.cluster to the session's namespace."


@asynccontextmanager
async def open_engines(settings: OperatorSettings, kubeconfig: Path | None) -> AsyncIterator["EngineRegistry"]:
    """The engines that the settings name; closes their connections in the end.

    Raises NoClusterError if there is no usable configuration of Kubernetes.
    """
    async with AsyncExitStack() as resources:
        kubernetes = await resources.enter_async_context(KubernetesClient(await load_config(kubeconfig)))
        monitoring = KeptMonitoringTokens(kubernetes, settings.own_namespace)
        ray = RayClusters(settings, monitoring)
        resources.push_async_callback(ray.close)
        kuberay = None
        if settings.kuberay.enabled:
            options = serving_options(settings)
            kuberay = KubeRayEngine(kubernetes, settings.kuberay, options, settings.namespaces, monitoring)
            resources.push_async_callback(kuberay.close)
        yield EngineRegistry(ray, kuberay, settings.default_engine)


class EngineRegistry:
    """The engines by the type that sessions name; it implements `ports.ServingEngines`."""

    def __init__(self, ray: RayClusters, kuberay: KubeRayEngine | None, default: EngineType = EngineType.RAY) -> None:
        self._ray = ray
        self._kuberay = kuberay
        self._default = default
        self._without_kuberay = MissingEngine(NO_KUBERAY)
        self._without_ray = MissingEngine(NO_RAY)
        self._not_offered = MissingEngine(NOT_OFFERED)

    def of(self, session: InferenceSession) -> ServingEngine:
        """The engine that the session names, or the default; the same object for the same cluster."""
        match session.spec.engine.type_or(self._default):
            case EngineType.KUBERAY:
                return self._kuberay or self._without_kuberay
            case EngineType.RAY:
                missing = self._without_ray if session.spec.engine.cluster is None else self._not_offered
                return self._ray.of(session) or missing

    def known(self) -> tuple[ServingEngine, ...]:
        """All engines that the operator is set up for, the default one first."""
        kuberay = (self._kuberay,) if self._kuberay is not None else ()
        return (*self._ray.all(), *kuberay) or (self._without_ray,)

    async def has_left(self, session: InferenceSession, engine: ServingEngine) -> bool:
        """Whether another engine serves the session now, on another cluster.

        Two addresses may lead to one Ray cluster, so these are compared by what the clusters say they are.
        """
        now = self.of(session)
        if now is engine or isinstance(now, MissingEngine):
            return False
        if isinstance(now, RayServeEngine) and isinstance(engine, RayServeEngine):
            return await now.cluster_id() != await engine.cluster_id()
        return True


class MissingEngine:
    """Stands for an engine that the operator is not set up for: nothing runs on it, and `apply` fails."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    async def apply(self, spec: ServingSpec) -> None:
        """Raises EngineUnavailableError with the setting that is missing."""
        raise EngineUnavailableError(self._advice)

    async def observe(self, session_key: str) -> ServingStatus:
        """A status with the advice only."""
        return ServingStatus(message=self._advice)

    async def signals(self, session_key: str) -> ServingSignals | None:
        """None."""
        return None

    async def ask(self, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        """Raises EngineUnavailableError with the setting that is missing."""
        raise EngineUnavailableError(self._advice)

    async def backend(self, session_key: str, serving: ServingStatus | None) -> SessionBackend | None:
        """None: nothing runs."""
        return None

    async def remove(self, session_key: str) -> bool:
        """True: nothing is left."""
        return True

    async def sessions(self) -> frozenset[str]:
        """No sessions."""
        return frozenset()

    async def capacity(self) -> Mapping[str, float]:
        """No resources."""
        return {}
