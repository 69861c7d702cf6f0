"""The operator is killed or fails at each of its effects in a session's life; the final state is always the same.

The list of effects is recorded from a run without faults, so it is complete: a roll-out, a change that needs another
plan, and the deletion. The whole operator runs except its watches; the API server is in memory.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.operator.handlers.faults.api_double import ApiDouble, Json
from tests.operator.handlers.faults.effects import (
    DEATHS,
    FAILURES,
    Fault,
    Gate,
    GatedApi,
    GatedEngine,
    GatedRunner,
    OperatorKilledError,
)
from tests.operator.handlers.in_memory import in_default, operator_on
from tests.operator.handlers.skipping_loop import run
from tests.operator.kubectl import pool, session

from partita_operator.handlers.context import Context
from partita_operator.handlers.passes import PassFailedError, process_pool, process_session, remove_leftovers
from partita_operator.kube.retries import PATIENCE, ApiServerUnavailableError
from partita_operator.ports import EngineUnavailableError

KEY = "default/traffic"
MOST_ROUNDS = 100
"""Most passes over everything until the state is stable; without faults each chapter needs about ten."""


EVERY_KIND = (
    "gpupools/fast",
    "gpupools/fast/status",
    "inferencesessions/traffic",
    "inferencesessions/traffic/status",
    "runner: start fast",
    "runner: remove",
    "configmaps/profile-",
    "pipelineplans/traffic-",
    "/events",
    "engine: apply traffic-",
    "engine: remove default/traffic",
)


@dataclass
class Life:
    """A cluster with one session, and its operators one after the other."""

    gate: Gate = field(default_factory=Gate)
    api: ApiDouble = field(default_factory=ApiDouble)
    made_plans: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.engine = GatedEngine(gate=self.gate)
        self.runner = GatedRunner(gate=self.gate)
        self.deaths = 0

    def run(self) -> list[Json]:
        """The whole life, chapter by chapter. Returns the state at the end of each."""
        return [run(self._chapter(begin)) for begin in (self.roll_out, self.change, self.deletion)]

    def roll_out(self) -> None:
        self.api.create("gpupools", pool("fast"))
        self.api.create("inferencesessions", in_default(session("traffic")))

    def change(self) -> None:
        self.api.create("inferencesessions", in_default(session("traffic", rate={"requestsPerSecond": 250})))

    def deletion(self) -> None:
        self.api.delete("inferencesessions", "default", "traffic")

    async def _chapter(self, begin: Any) -> Json:
        begin()
        for _ in range(3):
            try:
                await self._operator()
                break
            except OperatorKilledError:
                self.deaths += 1
        return self.outcome()

    async def _operator(self) -> None:
        """Run an operator from its start until there is nothing to do."""
        async with operator_on(GatedApi(self.api, self.gate), self.engine, self.runner) as context:
            await self._until_settled(context)

    async def _until_settled(self, context: Context) -> None:
        quiet = 0
        for _ in range(MOST_ROUNDS):
            before = len(self.gate.passed), str(self.outcome())
            await self._round(context)
            quiet = quiet + 1 if (len(self.gate.passed), str(self.outcome())) == before else 0
            if quiet == 2:
                return
        raise AssertionError(f"it does not settle: {self.gate.passed[-10:]}")

    async def _round(self, context: Context) -> None:
        """One round of the operator's loops: remove_leftovers, and a pass over every pool and session."""
        for step in (remove_leftovers, partial(process_pool, "fast"), partial(process_session, KEY)):
            try:
                await step(context)
            except (PassFailedError, ApiServerUnavailableError, EngineUnavailableError):
                pass  # the work queue tries again
            finally:
                self.made_plans |= {name for plural, _, name in self.api.objects if plural == "pipelineplans"}
        await asyncio.sleep(0.1)

    def outcome(self) -> Json:
        """The final state, without counters and times of changes."""
        return {
            "objects": {
                where: _timeless({part: o.get(part) for part in ("spec", "status", "data")} | _kept_metadata(o))
                for where, o in self.api.objects.items()
                if where[0] != "events"
            },
            "serving": {k: (s.plan.metadata.name, s.targets) for k, s in self.engine.applied.items()},
            "runs": set(self.runner.runs),
        }


def _kept_metadata(found: Json) -> Json:
    meta = found["metadata"]
    return {part: meta.get(part) for part in ("labels", "annotations", "finalizers", "deletionTimestamp")}


def _timeless(value: Any) -> Any:
    """Without times, and without uids, which depend on the number of earlier writes."""
    if isinstance(value, dict):
        left_out = ("lastTransitionTime", "lastScaleTime", "uid")
        return {k: _timeless(v) for k, v in value.items() if k not in left_out}
    return [_timeless(v) for v in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def undisturbed() -> tuple[Life, list[Json]]:
    life = Life()
    return life, life.run()


def test_the_recording_has_every_kind_of_effect(undisturbed: tuple[Life, list[Json]]) -> None:
    life, (rolled_out, changed, deleted) = undisturbed
    assert rolled_out["serving"]
    assert changed["serving"]
    assert changed["serving"] != rolled_out["serving"]
    assert deleted["serving"] == {}
    assert [where[0] for where in deleted["objects"] if where[0] in ("inferencesessions", "pipelineplans")] == []
    for kind in EVERY_KIND:
        assert any(kind in effect for effect in life.gate.passed), kind


@pytest.mark.parametrize("fault", DEATHS, ids=str)
def test_the_operator_may_be_killed_around_each_effect(fault: Fault, undisturbed: tuple[Life, list[Json]]) -> None:
    whole, want = undisturbed
    for number, effect in enumerate(whole.gate.passed):
        life = Life(Gate(fault, lambda at, number=number: at == number))
        found = life.run()
        where = f"{fault} effect {number}: {effect}"
        assert life.deaths == 1, where
        _same_end(found, want, where)
        _nothing_doubled(life, whole, where)


@pytest.mark.parametrize("times", [1, 2 * (PATIENCE.steps - 1)], ids=["once", "for longer than one pass repeats it"])
@pytest.mark.parametrize("fault", FAILURES, ids=str)
def test_each_effect_may_fail(fault: Fault, times: int, undisturbed: tuple[Life, list[Json]]) -> None:
    whole, want = undisturbed
    life = Life(Gate(fault, lambda _: True, times))
    _same_end(life.run(), want, fault)
    _nothing_doubled(life, whole, fault)


def _same_end(found: list[Json], want: list[Json], where: str) -> None:
    for chapter, (has, should) in enumerate(zip(found, want, strict=True)):
        assert has == should, f"chapter {chapter}, {where}"


def _nothing_doubled(life: Life, whole: Life, where: str) -> None:
    assert sorted(life.runner.started) == sorted(whole.runner.started), f"runs, {where}"
    assert life.made_plans == whole.made_plans, f"plans, {where}"
