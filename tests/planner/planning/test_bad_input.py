"""Invalid input is refused with the fix, and no plan is made."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders import INPUT, ProfileBuilder, SessionBuilder, pool, problem, profile, session
from tests.planner.problems.planned import planned

from partita_api.gpupool import GPUPoolSpec
from partita_api.inferencesession import InferenceSessionSpec, Objective, PlannerSettings, Rate
from partita_api.profile import BlockMemory, Profile
from partita_api.session.edge import Edge
from partita_api.session.module import TensorSpec
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, PlanningProblem

MODEL = session("s").model("m")
SCORES = TensorSpec(shape=(2,))
MEASURED = profile("m").measured({1: [[1000.0, 1500.0], [3000.0, 4000.0]]}).batches(1, 2)


def changed(**fields: Any) -> Callable[[], object]:
    """A profile of two blocks and two batch sizes with other fields."""
    document = MEASURED.build().model_dump()
    return lambda: Profile.model_validate({**document, **fields})


def times(*rows: list[float], divisor: int = 1) -> dict[str, object]:
    return {"divisor": divisor, "median_micros": rows}


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(changed(latency=()), "latencies of at least one vGPU divisor", id="empty profile"),
        pytest.param(
            changed(batch_sizes=(), latency=[times([], [])]), "at least one batch size", id="profile without batches"
        ),
        pytest.param(
            changed(latency=[times([1000, 1500])]), "must be 2 blocks x 2 batch sizes", id="a block that was not timed"
        ),
        pytest.param(
            changed(latency=[times([1000, 1500], [3000])]),
            "must be 2 blocks x 2 batch sizes",
            id="a batch size that was not timed",
        ),
        pytest.param(
            changed(latency=[times([1000, float("nan")], [3000, 4000])]),
            "should be a finite number",
            id="NaN",
        ),
        pytest.param(
            changed(latency=[times([1000, 1500], [float("inf"), 4000])]),
            "should be a finite number",
            id="infinite",
        ),
        pytest.param(changed(latency=[times([-1, 1500], [3000, 4000])]), "greater than or equal to 0", id="negative"),
        pytest.param(
            changed(latency=[times([0, 1500], [0, 4000])]), "takes less than 1 us", id="a batch that takes no time"
        ),
        pytest.param(lambda: profile("m").blocks(65).build(), "at most 64 items", id="65 blocks"),
        pytest.param(changed(batch_sizes=(2, 1)), "batch_sizes must increase", id="falling batch sizes"),
        pytest.param(changed(batch_sizes=(1, 1)), "batch_sizes must increase", id="a batch size twice"),
        pytest.param(changed(batch_sizes=(0, 1)), "greater than or equal to 1", id="batches of nothing"),
        pytest.param(
            changed(latency=[times([1, 2], [3, 4]), times([1, 2], [3, 4])]),
            "several entries of one divisor",
            id="a vGPU size twice",
        ),
        pytest.param(
            changed(memory=[BlockMemory(weights_bytes=1, activation_bytes=1)]),
            "one entry for each of the 2 blocks",
            id="memory of one block only",
        ),
        pytest.param(lambda: GPUPoolSpec(bandwidth="0"), "such as 10G", id="zero bandwidth"),
        pytest.param(lambda: Objective(weight=0), "greater than or equal to 1", id="weight 0"),
        pytest.param(lambda: Rate(requests_per_second=0), "greater than or equal to 1", id="rate 0"),
        pytest.param(
            lambda: Rate(requests_per_second=10**9), "less than or equal to 10000000", id="a rate of a thousand million"
        ),
        pytest.param(lambda: PlannerSettings(blocks=200), "less than or equal to 20", id="200 blocks asked for"),
        pytest.param(lambda: PlannerSettings(max_stages=0), "greater than or equal to 1", id="no stages"),
        pytest.param(
            lambda: InferenceSessionSpec.model_validate({"modules": []}), "slo", id="a session without an SLO"
        ),
    ],
)
def test_schemas_refuse(make: Callable[[], object], want: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        make()

    assert want in str(refusal.value)


def asked(
    desired: SessionBuilder = MODEL, profiles: tuple[ProfileBuilder, ...] = (MEASURED,), gpus: int = 4
) -> PlanningProblem:
    return problem(desired, [pool("fast").gpus(gpus), pool("slow").gpus(gpus)], profiles)


def looped() -> SessionBuilder:
    return session("s").model("a").model("b").edge("a", "b").edge("b", "a")


def with_outputs(**fields: Any) -> PlanningProblem:
    """A session of m and n with these fields of its edge, and a profile that says how m calls its outputs."""
    edge = Edge.model_validate({"from": "m", "to": "n", **fields})
    chain = MODEL.model("n").with_spec(edges=(edge,))
    answering = MEASURED.build().model_copy(update={"outputs": (INPUT, SCORES), "output_names": ("hidden", "scores")})
    return replace(asked(chain, (MEASURED, profile("n"))), profiles={("m", "fast"): answering})


def with_padding(padding: str) -> PlanningProblem:
    """A session of m, a model of two size classes whose numbers select one of 40 rows."""
    desired = session("s").sized("m", {4: None, 8: None}, padding)
    made = asked(desired, (profile("m-s4"), profile("m-s8")))
    selecting = {key: found.model_copy(update={"vocabularies": (40,)}) for key, found in made.profiles.items()}
    return replace(made, profiles=selecting)


CASES = [
    pytest.param(asked(profiles=()), NoPlanReason.NO_POOLS, "no profile on any pool", id="no profile at all"),
    pytest.param(
        asked(profiles=(profile("m").blocks(3), profile("m").blocks(4).on("slow"))),
        NoPlanReason.INVALID_SESSION,
        "but both name the same partition of the model: profile the model again",
        id="classes that say they cut alike and do not",
    ),
    pytest.param(
        with_padding("40"),
        NoPlanReason.INVALID_SESSION,
        "input.padding of module 'm' is 40, but its model has rows 0 to 39 only: give one of them",
        id="a padding outside of the vocabulary",
    ),
    pytest.param(asked(gpus=0), NoPlanReason.INSUFFICIENT_CAPACITY, "no free accelerator", id="zero GPUs"),
    pytest.param(asked(MODEL.slo(1)), NoPlanReason.SLO_TOO_TIGHT, "Set slo.latencyMs to 4", id="an SLO of 1 ms"),
    pytest.param(
        replace(asked(), rate=0.0),
        NoPlanReason.INVALID_SESSION,
        "give a finite rate above 0",
        id="an observed rate of 0",
    ),
    pytest.param(
        replace(asked(), rate=float("nan")),
        NoPlanReason.INVALID_SESSION,
        "give a finite rate above 0",
        id="NaN as rate",
    ),
    pytest.param(
        asked(MODEL.model("m")), NoPlanReason.INVALID_SESSION, "give each module its own name", id="a module twice"
    ),
    pytest.param(
        replace(asked(), pools=asked().pools * 2),
        NoPlanReason.INVALID_SESSION,
        "give each pool its own name",
        id="a pool twice",
    ),
    pytest.param(asked(looped()), NoPlanReason.INVALID_SESSION, "the edges form a cycle", id="a cyclic DAG"),
    pytest.param(
        with_outputs(map={"input": "pooled"}),
        NoPlanReason.INVALID_SESSION,
        "the edge from m to n maps output pooled, which m does not have: its outputs are hidden, scores",
        id="a map of an output that the model does not have",
    ),
    pytest.param(
        with_outputs(when="outputs.pooled[0] > 0.5"),
        NoPlanReason.INVALID_SESSION,
        "when of the edge from m to n does not fit the outputs of m: at character 9: there is no output pooled: "
        "the outputs are hidden, scores",
        id="a condition on an output that the model does not have",
    ),
    pytest.param(
        with_outputs(when="outputs.scores[0] == 'car'"),
        NoPlanReason.INVALID_SESSION,
        "== does not take double and string",
        id="a condition on an output of another type",
    ),
    pytest.param(
        asked(MODEL.planner(strategy="fastest")), NoPlanReason.INVALID_SESSION, "choose one of", id="no such strategy"
    ),
]


@pytest.mark.parametrize("kind", ["Cost", "Throughput"])
@pytest.mark.parametrize(("wrong", "want_reason", "want"), CASES)
def test_the_planner_refuses(wrong: PlanningProblem, want_reason: NoPlanReason, want: str, kind: str) -> None:
    objective = Objective.model_validate({"type": kind})
    outcome = plan(replace(wrong, spec=wrong.spec.model_copy(update={"objective": objective})))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is want_reason
    assert want in outcome.message


def test_a_rate_far_beyond_the_pools_is_refused() -> None:
    outcome = plan(asked(MODEL.rate(10_000_000)))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.INSUFFICIENT_CAPACITY
    assert "Add accelerators" in outcome.message


@pytest.mark.parametrize("kind", ["Cost", "Throughput"])
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(profile("m").blocks(1), id="one block"),
        pytest.param(profile("m").blocks(64), id="as many blocks as a plan holds"),
        pytest.param(profile("m").measured({1: [[0.0], [1000.0]]}).batches(1), id="a block that takes no time"),
        pytest.param(
            profile("m").measured({1: [[1000.0, 900.0, 2000.0]]}).batches(1, 2, 4),
            id="a batch faster than a smaller one",
        ),
        pytest.param(profile("m").batches(3, 7), id="odd batch sizes"),
    ],
)
def test_unusual_profiles_are_planned_with(made: ProfileBuilder, kind: str) -> None:
    assert planned(problem(MODEL.rate(50).with_spec(objective={"type": kind}), [pool("fast")], [made])).modules


@pytest.mark.parametrize("kind", ["Cost", "Throughput"])
def test_out_of_time_the_current_plan_stays(kind: str) -> None:
    desired = asked(MODEL.with_spec(objective={"type": kind}))
    current = planned(desired)

    def late() -> Callable[[], float]:
        moments = iter(range(0, 10**9, 1000))
        return lambda: float(next(moments))

    without, still = plan(desired, clock=late()), plan(replace(desired, current_plan=current), clock=late())

    assert isinstance(without, NoPlan)
    assert without.reason is NoPlanReason.TIME_LIMIT
    assert not isinstance(still, NoPlan)
    assert still.plan == current
