"""Models on partly idle GPUs share them if this saves GPUs and keeps memory and deadlines."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import PoolBuilder, pool, problem, profile, session
from tests.planner.problems.planned import planned, refused

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import Objective, ObjectiveType
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.profile import BlockMemory
from partita_api.session.execution import Backend, Execution
from partita_api.session.module import ModelSource
from partita_planner.problem import PlanningProblem
from partita_planner.validation import validate

MEGABYTE = 1_000_000


def asked(
    rate: int = 100, slo: int = 200, on: PoolBuilder | None = None, models: str = "abc", **settings: Any
) -> PlanningProblem:
    """Models in a row that each keep a little of a GPU busy: 10 ms a batch of one, 12 ms a batch of two."""
    fields = {"share_gpus": True, "max_batch_size": 2, "strategy": "no-partitioning", **settings}
    asked_for = session("s").slo(slo).rate(rate).chain(*models).planner(**fields)
    profiles = [profile(m).batches(1, 2).linear(2000, 8000).memory(10 * MEGABYTE, MEGABYTE) for m in models]
    return problem(asked_for, [on or pool("fast").price("3").gpus(8)], profiles)


def subclusters(plan: PipelinePlanSpec) -> dict[str, tuple[str | None, int]]:
    stages = {m.name: m.pipelines[0].stages[0] for m in plan.modules}
    return {name: (stage.subcluster, stage.replicas) for name, stage in stages.items()}


def test_models_share_as_few_gpus_as_their_loads_need() -> None:
    shared = planned(asked())
    assert subclusters(shared) == dict.fromkeys("abc", ("shared-0", 2)), "0.6 GPUs each"
    assert shared.gpus() == {"fast": 2}
    assert float(shared.cost.allocated_per_hour) == float(shared.solution.value) == 6
    assert float(shared.throughput) == pytest.approx(100 * 2 / 1.8)
    assert "a, b, c share 2 accelerators of fast (sub-cluster shared-0)." in shared.solution.explanation


def test_without_the_setting_each_has_its_own() -> None:
    alone = planned(asked(share_gpus=False))
    assert subclusters(alone) == dict.fromkeys("abc", (None, 1))


def test_none_share_where_that_saves_nothing() -> None:
    assert {name for name, _ in subclusters(planned(asked(rate=160))).values()} == {None}, "0.96 GPUs each"


@pytest.mark.parametrize(
    ("memory", "want"),
    [
        pytest.param("302M", {"a": "shared-0", "b": "shared-0", "c": "shared-0"}, id="all fit"),
        pytest.param("300M", {"a": "shared-0", "b": "shared-0", "c": None}, id="two fit"),
        pytest.param("200M", {"a": None, "b": None, "c": None}, id="one fits"),
    ],
)
def test_models_that_share_fit_a_gpus_memory(memory: str, want: dict[str, str | None]) -> None:
    """Ten blocks of 10 MB each, and 2 MB for a batch of two."""
    plan = planned(asked(rate=50, on=pool("fast").gpus(8).memory(memory)))
    assert {name: subcluster for name, (subcluster, _) in subclusters(plan).items()} == want


def test_models_share_only_where_one_may_wait_for_another() -> None:
    tight, loose = planned(asked(slo=70, rate=80)), planned(asked(slo=120, rate=80))
    assert tight.gpus() == {"fast": 3}
    assert loose.gpus() == {"fast": 2}


def test_the_plan_in_force_stays_and_is_valid() -> None:
    first = asked()
    plan = planned(first)
    assert planned(replace(first, current_plan=plan)) == plan


def test_the_validator_finds_what_a_subcluster_cannot_do() -> None:
    first = asked(on=pool("fast").price("3").gpus(8).memory("302M"))
    document = planned(first).model_dump(mode="json")
    document["modules"][0]["pipelines"][0]["throughput"] = "200"
    wrong = validate(PipelinePlanSpec.model_validate(document), first)
    assert any("sub-cluster 'shared-0' needs" in words for words in wrong), wrong
    tighter = asked(on=pool("fast").price("3").gpus(8).memory("301M"))
    wrong = validate(planned(first), tighter)
    assert wrong == ("the models of sub-cluster 'shared-0' do not fit the memory of a vGPU of 'fast'",)


def test_objectives_that_share_gpus_by_themselves_are_refused() -> None:
    built = asked()
    objective = built.spec.objective.model_copy(update={"cost_model": "Occupancy"})
    spec = built.spec.model_copy(update={"objective": objective})
    assert "planner.shareGpus needs objective.type Cost or Power" in refused(replace(built, spec=spec)).message


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400), st.integers(60, 400), st.sampled_from(("ab", "abc", "abcde")))
def test_sharing_never_costs_more(rate: int, slo: int, models: str) -> None:
    on = pool("fast").price("3").gpus(60)
    alone = planned(asked(rate, slo, on, models, share_gpus=False))
    shared = planned(asked(rate, slo, on, models))
    assert float(shared.solution.bound) <= float(shared.solution.value) <= float(alone.solution.value)
    assert shared.gpus()["fast"] <= alone.gpus()["fast"]


def sized(gpus: int, rate: int = 100, **settings: Any) -> PlanningProblem:
    """A model with three size classes behind a detector; each model takes 4 ms a sample, times its size / 16."""
    built = session("s").slo(400).rate(rate).model("find").sized("read", {16: "60%", 32: "30%", 64: "10%"})
    built = built.edge("find", "read").planner(max_batch_size=2, **settings)
    sizes = {"find": 16, "read-s16": 16, "read-s32": 32, "read-s64": 64}
    profiles = [profile(name).batches(1, 2).linear(size * 250, 0) for name, size in sizes.items()]
    return problem(built, [pool("fast").gpus(gpus)], profiles)


def test_the_size_classes_of_a_module_share_gpus_without_the_setting() -> None:
    plan = planned(sized(gpus=8))
    shared = {f"read-s{size}": ("shared-0", 1) for size in (16, 32, 64)}
    assert subclusters(plan) == {"find": (None, 1), **shared}
    assert [str(module.rate) for module in plan.modules] == ["100", "60", "30", "10"]


def test_with_the_setting_they_share_with_other_models_too() -> None:
    plan = planned(sized(gpus=8, rate=50, share_gpus=True))
    assert subclusters(plan) == dict.fromkeys(("find", "read-s16", "read-s32", "read-s64"), ("shared-0", 1))


@pytest.mark.parametrize("gpus", [2, 3])
def test_size_classes_need_no_gpu_each(gpus: int) -> None:
    """Without sharing they and the detector need four."""
    asked_for = sized(gpus)
    plan = planned(asked_for)
    assert plan.gpus() == {"fast": 2}
    assert "read-s16, read-s32, read-s64 share 1 accelerators of fast" in plan.solution.explanation
    assert planned(replace(asked_for, current_plan=plan)) == plan


def with_memory(memory: str, backend: Backend = Backend.EAGER, file: str | None = None) -> PlanningProblem:
    """Each model has ten blocks of 10 MB, and 1 MB for a sample."""
    found = sized(gpus=8)
    modules = tuple(
        module.model_copy(update={"model": ModelSource(file=file)}) if file and module.name == "read" else module
        for module in found.spec.modules
    )
    block = BlockMemory(weights_bytes=10 * MEGABYTE, activation_bytes=MEGABYTE)
    profiles = {key: each.model_copy(update={"memory": (block,) * each.blocks}) for key, each in found.profiles.items()}
    (fast,) = found.pools
    limited = replace(fast, spec=fast.spec.model_copy(update={"memory": Quantity(memory)}))
    spec = found.spec.model_copy(update={"modules": modules, "execution": Execution(backend=backend)})
    return replace(found, spec=spec, pools=(limited,), profiles=profiles)


@pytest.mark.parametrize(
    ("asked_for", "want"),
    [
        pytest.param(with_memory("101M"), 3, id="their weights once"),
        pytest.param(with_memory("101M", Backend.INDUCTOR), 3, id="compiled"),
        pytest.param(with_memory("101M", file="read.pt"), 3, id="a file"),
        pytest.param(with_memory("300M", Backend.TENSORRT), 2, id="engines have weights of their own"),
        pytest.param(with_memory("300M", file="s3://models/read.onnx"), 2, id="and so has ONNX Runtime"),
        pytest.param(with_memory("301M", file="read.onnx"), 3, id="all fit"),
    ],
)
def test_size_classes_need_the_memory_of_their_weights_once(asked_for: PlanningProblem, want: int) -> None:
    """A class that does not fit beside the others is padded to a larger one."""
    found = planned(asked_for)
    assert [stage.subcluster for _, _, _, stage in found.stages()].count("shared-0") == want
    assert sum(module.padded_to is not None for module in found.modules) == 3 - want


def test_the_validator_counts_common_weights_once() -> None:
    plan = planned(with_memory("101M"))
    assert validate(plan, with_memory("101M")) == ()
    wrong = "the models of sub-cluster 'shared-0' do not fit the memory of a vGPU of 'fast'"
    assert wrong in validate(plan, with_memory("100M"))
    assert wrong in validate(plan, with_memory("300M", Backend.TENSORRT))
    assert wrong not in validate(plan, with_memory("301M", Backend.TENSORRT))


def test_too_few_gpus_for_sharing_are_too_few() -> None:
    assert "Add accelerators" in refused(sized(gpus=1)).message


def test_size_classes_have_their_own_gpus_where_throughput_counts() -> None:
    """Sub-clusters would save no cost then."""
    built = sized(gpus=8)
    objective = Objective(type=ObjectiveType.THROUGHPUT)
    plan = planned(replace(built, spec=built.spec.model_copy(update={"objective": objective})))
    assert {name for name, _ in subclusters(plan).values()} == {None}
