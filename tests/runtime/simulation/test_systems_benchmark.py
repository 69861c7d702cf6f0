"""The benchmark of whole systems: PPipe's configurations, and vGPUs of a plan on GPUs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.scheduling.system_cases.configurations import large, small
from benchmarks.scheduling.system_cases.system import on_gpus
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_runtime.scheduling.plan import SchedulingPlan


def sliced(**sizes: tuple[int, int]) -> SchedulingPlan:
    """A plan with a module of one stage for each (divisor, vGPUs), all on one pool."""
    modules = []
    for name, (divisor, replicas) in sizes.items():
        built = module(name).pipeline(1, stage("gpu", replicas=replicas)).build()
        (pipeline,) = built.pipelines
        stages = (pipeline.stages[0].model_copy(update={"vgpu_divisor": divisor}),)
        modules.append(built.model_copy(update={"pipelines": (pipeline.model_copy(update={"stages": stages}),)}))
    return plan_of().model_copy(update={"modules": tuple(modules)})


@pytest.mark.parametrize(
    ("plan", "gpus", "want"),
    [
        pytest.param(sliced(a=(1, 2), b=(2, 3)), 9, [["a"], ["a"], ["b"], ["b", "b"]], id="a size for each GPU"),
        pytest.param(sliced(a=(2, 1), b=(2, 3)), 9, [["a", "b"], ["b", "b"]], id="modules share GPUs"),
        pytest.param(sliced(a=(2, 1), b=(4, 2)), 2, [["a"], ["b", "b"]], id="sizes apart while there are GPUs"),
        pytest.param(sliced(a=(2, 1), b=(4, 2)), 1, [["a", "b", "b"]], id="sizes together where there are too few"),
    ],
)
def test_vgpus_on_gpus(plan: SchedulingPlan, gpus: int, want: list[list[str]]) -> None:
    placed = on_gpus(plan, {"gpu": gpus})

    assert max(Counter(place.worker for place in placed).values()) == 1
    by_gpu: dict[str, list[str]] = {}
    for place in placed:
        by_gpu.setdefault(place.gpu, []).append(place.stage.module)
    assert sorted(map(sorted, by_gpu.values())) == want
    assert set(by_gpu) == {f"gpu-gpu-{n}" for n in range(len(want))}


def reference(trace: str = "maf19", **fields: Any) -> dict[str, Any]:
    return {
        "trace": trace,
        "models": ["a", "b"],
        "weights": [0.4, 0.6],
        "slo_us": [50.0, 100.0],
        "estimated_throughput": [100.0, 200.0],
        "pools": [{"gpu": "L4", "count": 25}, {"gpu": "P4", "count": 75}],
        "plan": [],
        **fields,
    }


def test_configurations(tmp_path: Path) -> None:
    (tmp_path / "reference_plans.json").write_text(json.dumps([reference(), reference("ablation"), reference()]))
    both, other = large(tmp_path)

    assert (both.cluster, other.cluster, both.gpus) == ("HC1", "HC2", {"L4": 25, "P4": 75})
    assert both.with_slo_scale(10).slos == {"a": 100.0, "b": 200.0}
    first, second, _, _ = small(tmp_path)
    assert (first.slos, first.weights, first.gpus) == ({"a": 50.0}, {"a": 1.0}, {"L4": 4, "P4": 12})
    assert second.reference["estimated_throughput"] == pytest.approx([200 * 2 * 16 / 100])
