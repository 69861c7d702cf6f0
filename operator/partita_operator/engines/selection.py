"""Which engine serves which session."""

from collections.abc import Mapping

from partita_api.inferencesession import EngineKind, InferenceSession
from partita_operator.engines.kuberay.engine import KubeRayEngine
from partita_operator.engines.ray_serve import RayServeEngines
from partita_operator.ports import EngineUnavailableError, ServingEngine, ServingSpec, ServingStatus, SessionSignals


class Engines:
    """The engines that the operator is set up for; `ServingEngines` says what its methods do."""

    def __init__(self, ray: RayServeEngines, kuberay: KubeRayEngine | None) -> None:
        self._ray = ray
        self._kuberay = kuberay
        self._without_kuberay = MissingEngine(
            "The operator is not set up for KubeRay. Set kuberay.image of the chart (PARTITA_KUBERAY), or use "
            "engine.kind Ray."
        )
        self._without_ray = MissingEngine(
            "The operator knows no Ray cluster. Set ray.address of the chart (PARTITA_RAY_ADDRESS) or engine.address "
            "of the session, or use engine.kind KubeRay."
        )

    def of(self, session: InferenceSession) -> ServingEngine:
        """The engine that the session names, or the operator's own; the same object for the same address."""
        if session.spec.engine.kind is EngineKind.KUBERAY:
            return self._kuberay or self._without_kuberay
        return self._ray.of(session) or self._without_ray

    def known(self) -> tuple[ServingEngine, ...]:
        """The operator's own engine, and then every other one that `of` has given."""
        kuberay = (self._kuberay,) if self._kuberay is not None else ()
        return (*self._ray.known(), *kuberay) or (self._without_ray,)


class MissingEngine:
    """In place of an engine that the operator is not set up for: nothing runs, and nothing can be made to run."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    async def apply(self, spec: ServingSpec) -> None:
        """Raises EngineUnavailableError, with what to set."""
        raise EngineUnavailableError(self._advice)

    async def observe(self, session_key: str) -> ServingStatus:
        """Nothing but the advice."""
        return ServingStatus(message=self._advice)

    async def signals(self, session_key: str) -> SessionSignals | None:
        """None."""
        return None

    async def remove(self, session_key: str) -> bool:
        """True: nothing is left."""
        return True

    async def sessions(self) -> frozenset[str]:
        """None."""
        return frozenset()

    async def capacity(self) -> Mapping[str, float]:
        """Nothing."""
        return {}
