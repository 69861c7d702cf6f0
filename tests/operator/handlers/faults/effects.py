"""Every effect that an operator has outside of itself, in order, and the faults at each of them.

An effect is a request that changes something on the API server, or a call that changes something on the engine or
starts or removes a profiling run. A `Gate` in front of both counts the effects. At a chosen effect it kills the
operator before or after it, or lets the effect fail.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from aiohttp import ClientConnectionError
from tests.operator.doubles import EngineDouble, RunnerDouble
from tests.operator.handlers.faults.api_double import Answer, ApiDouble, Request, status

from partita_api.gpupool import GPUPool
from partita_api.profile import ProfileRequest
from partita_operator.ports import EngineUnavailableError, ServingSpec


class OperatorKilledError(BaseException):
    """The operator's process is killed; no code in it can catch this."""


class Fault(StrEnum):
    """A fault at an effect."""

    DEATH_BEFORE = "killed before"
    DEATH_AFTER = "killed after"
    CONFLICT = "conflict (409)"
    TOO_MANY = "too many requests (429)"
    SERVER_ERROR = "internal error (500)"
    REFUSED = "connection refused"
    LOST_ANSWER = "done, but the answer was lost"


DEATHS: Final = (Fault.DEATH_BEFORE, Fault.DEATH_AFTER)
FAILURES: Final = tuple(fault for fault in Fault if fault not in DEATHS)


@dataclass
class Gate:
    """Passes effects on and records their names. An effect at `fails_at` fails by `fault`, `times` times."""

    fault: Fault | None = None
    fails_at: Callable[[int], bool] = lambda _: False
    times: int = 1
    passed: list[str] = field(default_factory=list)
    """All attempted effects, including failed ones."""
    _failed: Counter[str] = field(default_factory=Counter)

    def fault_at(self, effect: str) -> Fault | None:
        """The fault at this effect, or None; the same effect may be tried again."""
        number = len(self.passed)
        self.passed.append(effect)
        if self.fault is None or self._failed[effect] >= self.times or not self.fails_at(number):
            return None
        self._failed[effect] += 1
        return self.fault


@dataclass
class GatedApi:
    """The API server behind the gate."""

    api: ApiDouble
    gate: Gate

    async def handle(self, request: Request) -> Answer:
        """Answer one request, or fail by the gate's fault."""
        if request.method == "GET":
            return await self.api.handle(request)
        fault = self.gate.fault_at(f"{request.method} {request.path}")
        match fault:
            case Fault.DEATH_BEFORE:
                raise OperatorKilledError
            case Fault.CONFLICT:
                return status(409, "Conflict")
            case Fault.TOO_MANY:
                return status(429, "TooManyRequests", headers={"Retry-After": "7"})
            case Fault.SERVER_ERROR:
                return status(500, "InternalError")
            case Fault.REFUSED:
                raise ClientConnectionError("connection refused")
        answer = await self.api.handle(request)
        if fault is Fault.DEATH_AFTER:
            raise OperatorKilledError
        if fault is Fault.LOST_ANSWER:
            raise ClientConnectionError("connection reset")
        return answer


@dataclass
class GatedEngine(EngineDouble):
    """The engine behind the gate; an `apply` that changes nothing is no effect."""

    gate: Gate = field(default_factory=Gate)

    async def apply(self, spec: ServingSpec) -> None:
        known = self.applied.get(spec.session.key)
        if known is not None and (known.plan.metadata.name, known.targets) == (spec.plan.metadata.name, spec.targets):
            await super().apply(spec)
            return
        await _through(self.gate, f"engine: apply {spec.plan.metadata.name}", super().apply, spec)

    async def remove(self, session_key: str) -> bool:
        removed: bool = await _through(self.gate, f"engine: remove {session_key}", super().remove, session_key)
        return removed


@dataclass
class GatedRunner(RunnerDouble):
    """The profile runner behind the gate."""

    gate: Gate = field(default_factory=Gate)

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        effect = f"runner: start {request.pool}/{attempt}"
        await _through(self.gate, effect, super().start, namespace, request, pool, attempt)

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        await _through(self.gate, f"runner: remove {attempt}", super().remove, namespace, key, attempt)


async def _through(gate: Gate, effect: str, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    fault = gate.fault_at(effect)
    if fault is Fault.DEATH_BEFORE:
        raise OperatorKilledError
    if fault not in (None, Fault.DEATH_AFTER, Fault.LOST_ANSWER):
        raise EngineUnavailableError(f"It failed: {fault}.")
    result = await call(*arguments)
    if fault is Fault.DEATH_AFTER:
        raise OperatorKilledError
    if fault is Fault.LOST_ANSWER:
        raise EngineUnavailableError("It did not answer in time.")
    return result
