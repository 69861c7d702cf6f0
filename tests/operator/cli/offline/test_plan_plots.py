"""The figures of a plan."""

from typing import Any

from tests.builders import session

from partita_api.pipelineplan import PipelinePlanSpec
from partita_operator.cli.offline.plan_plots import latency_budgets, pipelines, pools
from partita_operator.cli.plan_report import stage_table

TRAFFIC = session("traffic").slo(100).chain("detect", "crop", "car")


def stage(pool: str, blocks: tuple[int, int], replicas: int, millis: int) -> dict[str, Any]:
    first, end = blocks
    return {"pool": pool, "blocks": {"first": first, "end": end}, "replicas": replicas, "latencyMicros": millis * 1000}


def module(name: str, millis: int, *stages: dict[str, Any]) -> dict[str, Any]:
    """A module with one pipeline."""
    pipeline = {"name": "a", "batchSize": 4, "throughput": 50, "stages": stages}
    return {"name": name, "rate": 50, "budgetMicros": millis * 1000, "pipelines": [pipeline]}


PLAN = PipelinePlanSpec.model_validate(
    {
        "session": {"name": "traffic"},
        "inputsDigest": "0",
        "solution": {"strategy": "partita", "objective": "Cost", "value": 1, "bound": 1, "gap": 0, "seconds": 1},
        "cost": {"allocatedPerHour": 1, "occupancyPerHour": 1},
        "throughput": 50,
        "modules": [
            module("detect", 40, stage("fast", (0, 4), 2, 10), stage("slow", (4, 10), 3, 10)),
            module("crop", 5, stage("fast", (0, 10), 1, 2)),
            module("car", 30, stage("slow", (0, 10), 1, 5)),
        ],
    }
)


def bars(axes: Any) -> list[tuple[float, float, float]]:
    """Row, begin and width of all bars that are drawn, except those of the legend."""
    found = []
    for bar in axes.collections:
        for path in bar.get_paths():
            box = path.get_extents()
            found.append(((box.y0 + box.y1) / 2, box.x0, box.width))
    return [(round(row), round(begin, 3), round(width, 3)) for row, begin, width in found]


def test_each_stage_has_a_bar_over_its_blocks() -> None:
    (axes,) = pipelines(PLAN).axes

    stages = [(s.blocks.first, s.blocks.end - s.blocks.first) for _, _, _, s in PLAN.stages()]
    assert [(begin, width) for _, begin, width in bars(axes)] == stages
    assert [text.get_text() for text in axes.texts] == [
        "2 × fast, 10.0 ms",
        "3 × slow, 10.0 ms",
        "1 × fast, 2.0 ms",
        "1 × slow, 5.0 ms",
    ]


def test_pools_differ_in_their_pattern() -> None:
    (axes,) = pipelines(PLAN).axes

    fast, slow, fast_again, slow_again = [bar.get_hatch() for bar in axes.collections[:4]]
    assert fast != slow
    assert (fast_again, slow_again) == (fast, slow)


def test_budgets_follow_the_longest_path() -> None:
    (axes,) = latency_budgets(TRAFFIC.build(), PLAN).axes

    drawn = bars(axes)
    assert {(0, 0, 40), (1, 40, 5), (2, 45, 30)} <= set(drawn), "budgets: row, begin, milliseconds"
    assert {(0, 20, 10), (0, 30, 10), (2, 70, 5)} <= set(drawn), "stages at the end of their budget"


def test_a_padded_size_class_has_no_budget_of_its_own_and_a_row_in_the_table() -> None:
    sized = session("traffic").slo(100).sized("read", {8: None, 16: None}).build()
    served = module("read-s16", 40, stage("fast", (0, 4), 2, 10))
    padded = {"name": "read-s8", "rate": 25, "budgetMicros": 40_000, "paddedTo": "read-s16"}
    plan = PipelinePlanSpec.model_validate({**PLAN.model_dump(by_alias=True), "modules": [padded, served]})
    (axes,) = latency_budgets(sized, plan).axes

    assert [label.get_text() for label in axes.get_yticklabels()] == ["read-s16/a\n40 ms"]
    table = stage_table(sized, plan)
    assert list(table.columns[0].cells) == ["read-s16", "read-s8"]
    assert list(table.columns[2].cells) == ["a", "padded to read-s16"]


def test_pools_have_their_accelerators_and_those_taken() -> None:
    (axes,) = pools(PLAN, {"fast": 4, "slow": 6, "unused": 2}).axes

    assert bars(axes) == [(0, 0, 4), (0, 0, 3), (1, 0, 6), (1, 0, 4), (2, 0, 2)]
