"""Size classes whose samples are padded to a larger class, where replicas of their own would cost more."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import pool, problem, profile, session
from tests.planner.problems.planned import planned, refused

from partita_api.inferencesession import Objective
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.execution import Backend, Execution
from partita_planner.explain.difference import differences
from partita_planner.problem import PlanningProblem
from partita_planner.validation import validate

OCCUPANCY = {"type": "Cost", "cost_model": "Occupancy"}
THROUGHPUT = {"type": "Throughput"}
ALLOCATED = {"type": "Cost"}
SHARES = {16: "60%", 32: "30%", 64: "10%"}


def reading(
    objective: Mapping[str, str],
    rate: int = 100,
    gpus: int = 8,
    shares: Mapping[int, str | None] = SHARES,
    memory: str | None = None,
    **planner: Any,
) -> PlanningProblem:
    """A model with size classes: a batch takes 8 ms, and 0.05 ms for each sample and unit of its size.

    With TensorRT each class has weights of its own.
    """
    built = session("s").slo(100).rate(rate).sized("read", shares).planner(max_batch_size=8, **planner)
    built = built.with_spec(
        objective=Objective.model_validate(objective), execution=Execution(backend=Backend.TENSORRT)
    )
    profiles = [
        profile(f"read-s{size}").batches(1, 2, 4, 8).linear(size * 50, 8000).memory(10_000_000, 0) for size in shares
    ]
    fast = pool("fast").price("1").gpus(gpus)
    return problem(built, [fast.memory(memory) if memory else fast], profiles)


def padded(found: PipelinePlanSpec) -> dict[str, str]:
    return {m.name.removeprefix("read-"): m.padded_to.removeprefix("read-") for m in found.modules if m.padded_to}


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(reading(OCCUPANCY, rate=20), {"s16": "s32"}, id="few samples make no full batches"),
        pytest.param(reading(OCCUPANCY, rate=2000, gpus=64), {}, id="many samples do"),
        pytest.param(reading(ALLOCATED, rate=20), {}, id="classes that share an accelerator cost no more"),
        pytest.param(
            reading(THROUGHPUT, gpus=3, shares={16: "90%", 32: "5%", 64: "5%"}),
            {"s32": "s64"},
            id="an accelerator of a rare class serves more as that of another",
        ),
        pytest.param(reading(THROUGHPUT, gpus=1), {"s16": "s64", "s32": "s64"}, id="one accelerator for three classes"),
        pytest.param(
            reading(THROUGHPUT, gpus=1, shares=dict.fromkeys(SHARES)), {"s16": "s64", "s32": "s64"}, id="equal shares"
        ),
        pytest.param(
            reading(ALLOCATED, rate=20, memory="150M"),
            {"s16": "s64", "s32": "s64"},
            id="accelerators with memory for one class each",
        ),
    ],
)
def test_a_class_is_padded_where_that_is_better(asked: PlanningProblem, want: dict[str, str]) -> None:
    found = planned(asked)
    assert padded(found) == want
    said = [f"read-{small} to read-{large}" for small, large in want.items()]
    assert found.solution.explanation.startswith("Size classes without replicas") == bool(want)
    assert all(words in found.solution.explanation for words in said)


def test_the_larger_class_has_the_samples_of_the_smaller_one() -> None:
    found = planned(reading(OCCUPANCY, rate=20))
    small, middle, _ = found.modules
    assert (str(small.rate), small.pipelines) == ("12", ())
    assert (str(middle.rate), middle.padded_to) == ("18", None)
    assert small.budget_micros == middle.budget_micros


def test_a_plan_with_padded_classes_stays() -> None:
    for asked in (reading(OCCUPANCY, rate=20), reading(THROUGHPUT, gpus=1)):
        found = planned(asked)
        assert planned(replace(asked, current_plan=found)) == found


def test_a_plan_with_padded_classes_makes_way_for_a_better_one() -> None:
    few, many = reading(OCCUPANCY, rate=20), reading(OCCUPANCY, rate=2000, gpus=64)
    found = planned(replace(many, current_plan=planned(few)))
    assert padded(found) == {}
    changed = [change for change in differences(planned(few), found) if change.what == "padded to"]
    assert [(change.before, change.after) for change in changed] == [("read-s32", None)]


def test_one_accelerator_is_too_few_without_memory_for_two_models() -> None:
    asked = reading(ALLOCATED, rate=20, gpus=1, memory="150M")
    assert padded(planned(asked)) == {"s16": "s64", "s32": "s64"}
    message = refused(reading(ALLOCATED, rate=2000, gpus=1, memory="150M")).message
    assert "Add accelerators" in message


@settings(max_examples=25, deadline=None)
@given(
    st.integers(5, 600),
    st.sampled_from(((60, 30, 10), (5, 5, 90), (90, 5, 5), (1, 98, 1))),
    st.sampled_from((OCCUPANCY, ALLOCATED, THROUGHPUT)),
)
def test_padding_is_never_worse(rate: int, shares: tuple[int, ...], objective: Mapping[str, str]) -> None:
    """Compared with a plan for the three classes as modules of their own, which are not padded."""
    asked = reading(objective, rate, 16, {size: f"{share}%" for size, share in zip(SHARES, shares, strict=True)})
    built = session("s").slo(100).rate(rate).function("route")
    for size, share in zip(SHARES, shares, strict=True):
        built = built.model(f"read-s{size}").edge("route", f"read-s{size}", mean=str(share / 100))
    built = built.planner(max_batch_size=8, share_gpus=objective is ALLOCATED)
    unsized = built.with_spec(objective=asked.spec.objective).build().spec
    found, apart = planned(asked), planned(replace(asked, spec=unsized))
    better, worse = (found, apart) if objective is THROUGHPUT else (apart, found)
    assert float(better.solution.value) >= float(worse.solution.value) * (1 - 1e-4)


@pytest.mark.parametrize(
    ("path", "value", "want"),
    [
        pytest.param("paddedTo", "read-s64", "the next larger class with replicas is 'read-s32'", id="a larger one"),
        pytest.param("paddedTo", "read-s16", "the next larger class with replicas is 'read-s32'", id="itself"),
        pytest.param("paddedTo", "write", "the next larger class with replicas is 'read-s32'", id="no class"),
        pytest.param("paddedTo", None, "model 'read-s16' has no pipeline", id="none"),
        pytest.param("budgetMicros", 1, "another budget than 'read-s32'", id="another budget"),
        pytest.param("rate", "20", "do not follow from one request rate", id="all samples"),
    ],
)
def test_the_validator_finds_what_is_wrong_with_a_padded_class(path: str, value: object, want: str) -> None:
    asked = reading(OCCUPANCY, rate=20)
    document = planned(asked).model_dump(mode="json", by_alias=True)
    document["modules"][0][path] = value
    wrong = validate(PipelinePlanSpec.model_validate(document), asked)
    assert any(want in words for words in wrong), wrong


def test_the_largest_class_and_a_class_with_replicas_are_not_padded() -> None:
    asked = reading(OCCUPANCY, rate=20)
    document = planned(asked).model_dump(mode="json", by_alias=True)
    document["modules"][1]["paddedTo"] = "read-s64"
    assert any("'read-s32' is padded" in words for words in validate(PipelinePlanSpec.model_validate(document), asked))
    document = planned(asked).model_dump(mode="json", by_alias=True)
    document["modules"][2] |= {"paddedTo": "read-s64", "pipelines": []}
    assert any("'read-s64' is padded" in words for words in validate(PipelinePlanSpec.model_validate(document), asked))
