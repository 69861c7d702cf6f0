"""What stands for the serving engine, the profiler and the planner, so that the operator's own work is measured.

Replicas come up a second after they are asked for. Sessions then report traffic at their declared rate, with the
noise that measurements have: no two answers are alike. What the engine runs is kept in files, so that it outlives the
operator, as a Ray cluster does.
"""

import asyncio
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.operator.doubles import EngineDouble, RunnerDouble, one_stage_plan

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import InferenceSession, Signals
from partita_operator.ports import ServingSignals, ServingSpec, ServingStatus, StageSignals
from partita_planner.problem import Outcome, PlanningProblem

STARTS_IN_S: Final = 1.0


@dataclass
class NoisyEngine(EngineDouble):
    """An engine whose replicas take a moment, and whose frontends measure real-looking numbers."""

    directory: Path = Path()
    """Where it keeps what it runs, one file for each session."""
    calls: int = 0
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        for file in self.directory.glob("*.pickle"):
            spec: ServingSpec = pickle.loads(file.read_bytes())
            self.applied[spec.session.key] = spec
            self._since[spec.session.key, spec.plan.metadata.name] = _now() - STARTS_IN_S

    async def apply(self, spec: ServingSpec) -> None:
        self.calls += 1
        self._since.setdefault((spec.session.key, spec.plan.metadata.name), _now())
        before = self.applied.get(spec.session.key)
        if before is None or (before.plan.metadata.name, before.targets) != (spec.plan.metadata.name, spec.targets):
            self._keep(spec)
        await super().apply(spec)

    async def observe(self, session_key: str) -> ServingStatus:
        self.calls += 1
        return await super().observe(session_key) if self._is_up(session_key) else ServingStatus()

    async def signals(self, session_key: str) -> ServingSignals | None:
        self.calls += 1
        spec = self.applied.get(session_key)
        if spec is None or not self._is_up(session_key):
            return None
        offered = float(spec.session.spec.rate.requests_per_second) * self._random.uniform(0.95, 1.05)
        bad = self._random.uniform(0.0, 0.002)
        return ServingSignals(
            reported=Signals(
                offered_rate=_quantity(offered),
                goodput=_quantity(offered * (1 - bad)),
                bad_rate=_quantity(bad),
                idle_fraction=_quantity(self._random.uniform(0.15, 0.2)),
                p50_ms=_quantity(self._random.uniform(30, 33)),
                p99_ms=_quantity(self._random.uniform(80, 90)),
            ),
            plan=spec.plan.metadata.name,
            stages=tuple(
                StageSignals(t.module, t.pipeline, t.stage, t.replicas, self._random.uniform(0.15, 0.2), bad)
                for t in spec.targets
            ),
        )

    def _keep(self, spec: ServingSpec) -> None:
        file = self.directory / f"{spec.session.key.replace('/', '_')}.pickle"
        draft = file.with_suffix(".draft")
        draft.write_bytes(pickle.dumps(spec))
        draft.replace(file)

    def _is_up(self, session_key: str) -> bool:
        spec = self.applied.get(session_key)
        return spec is not None and _now() - self._since[session_key, spec.plan.metadata.name] >= STARTS_IN_S


@dataclass(frozen=True)
class OneEngine:
    """The engine of all sessions."""

    engine: NoisyEngine

    def of(self, session: InferenceSession) -> NoisyEngine:
        return self.engine

    def known(self) -> tuple[NoisyEngine, ...]:
        return (self.engine,)


class OneStageSolver:
    """Every model whole on the first pool with room, at once."""

    async def solve(self, namespace: str, problem: PlanningProblem) -> Outcome:
        return one_stage_plan(problem)


def operator_doubles(directory: Path) -> tuple[OneEngine, RunnerDouble, OneStageSolver]:
    """What the operator runs with; the engine keeps what it runs in `directory`."""
    return OneEngine(NoisyEngine(directory=directory)), RunnerDouble(), OneStageSolver()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _quantity(number: float) -> Quantity:
    return Quantity(round(number, 4))
