"""The figures that a result comes down to, and how the terminal shows them."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console
from tests.devtools.demo.demo_results import agreement, demo_result

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import ObjectiveType
from partita_api.pipelineplan import Alternative, PipelinePlanSpec
from partita_devtools.demo.console import print_result, slo_met
from partita_devtools.demo.result import DemoResult, ReadPicture, SignalSample
from partita_devtools.demo.summary import (
    accelerators,
    batch_sizes,
    comparison_sentence,
    mean_utilization,
    reasons_for_misses,
    replicas,
    stage_rows,
    utilization,
)

READ = ReadPicture(
    name="note",
    png=b"",
    package="rapidocr",
    written=("first line", "second line", "third line"),
    served=("first line",),
    own=("first line", "second lime"),
)


def printed(result: DemoResult) -> str:
    console = Console(width=160, file=io.StringIO())
    print_result(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plan_with(
    *alternatives: Alternative, kind: ObjectiveType = ObjectiveType.COST, value: str = "3.31"
) -> PipelinePlanSpec:
    plan = demo_result().plan.spec
    solution = plan.solution.model_copy(update={"objective": kind, "value": Quantity(value)})
    return plan.model_copy(update={"solution": solution, "alternatives": alternatives})


def whole(value: str | None) -> Alternative:
    quantity = None if value is None else Quantity(value)
    return Alternative(strategy="no-partitioning", feasible=value is not None, value=quantity)


@pytest.mark.parametrize(
    ("plan", "want"),
    [
        pytest.param(plan_with(whole("4.05")), "18% less than 4.05 an hour without partitioning", id="cheaper"),
        pytest.param(plan_with(whole("3.00")), "10% more than 3.00 an hour without partitioning", id="dearer"),
        pytest.param(plan_with(whole("3.31")), "the same as 3.31 an hour without partitioning", id="the same"),
        pytest.param(plan_with(whole(None)), "without partitioning there is no plan at all", id="only so"),
        pytest.param(plan_with(), "no plan without partitioning was computed", id="not computed"),
        pytest.param(
            plan_with(whole("200"), kind=ObjectiveType.THROUGHPUT, value="300"),
            "50% more than 200 requests/s without partitioning",
            id="throughput",
        ),
    ],
)
def test_plan_is_compared_with_whole_models(plan: PipelinePlanSpec, want: str) -> None:
    assert comparison_sentence(plan) == want


def sample(at_s: float, window_s: float = 10.0, idle: float = 0.4, sizes: dict[int, int] | None = None) -> SignalSample:
    made_up = demo_result().samples[0]
    signals = made_up.signals.model_copy(
        update={"window_seconds": window_s, "idle_fraction": idle, "batch_sizes": sizes or {4: 10}}
    )
    return replace(made_up, at_s=at_s, signals=signals)


def test_batches_of_overlapping_windows_are_counted_once() -> None:
    result = replace(demo_result(), samples=tuple(sample(float(at)) for at in range(1, 32)))

    assert batch_sizes(result) == {4: 40}, "windows that end at 1, 11, 21 and 31 s"


def test_utilization_of_a_phase_leaves_out_windows_that_reach_back() -> None:
    before = [sample(float(at), idle=1.0) for at in range(1, 11)]
    settled = [sample(float(at), idle=0.25) for at in range(11, 60)]
    result = replace(demo_result(), samples=(*before, *settled))

    assert mean_utilization(result) == pytest.approx(0.75)


def test_utilization_of_a_phase_without_looks_is_unknown() -> None:
    assert mean_utilization(replace(demo_result(), samples=())) is None


def test_series_are_by_pool_and_by_stage() -> None:
    result = demo_result()

    assert {pool: len(points) for pool, points in utilization(result).items()} == {
        "l4-emulated": 121,
        "p4-emulated": 121,
    }
    assert all(0 <= busy <= 1 for points in utilization(result).values() for _, busy in points)
    assert [row.key for row in stage_rows(result)] == list(replicas(result))
    assert max(count for _, count in replicas(result)["detector/p0/0"]) == 3


def test_accelerators_are_counted_by_pool() -> None:
    assert accelerators(demo_result()) == {"l4-emulated": (2.0, 6), "p4-emulated": (9.0, 10)}


@pytest.mark.parametrize(
    ("change", "want", "want_met"),
    [
        pytest.param(
            lambda result: replace(result, verification=agreement()),
            ["objective of 99% is met", "are those of the whole models", "18% less than 4.05", "2 of 6 l4-emulated"],
            True,
            id="all well",
        ),
        pytest.param(
            lambda result: replace(result, verification=agreement("request 1: person is nothing")),
            ["are NOT those of the whole models", "request 1: person is nothing"],
            False,
            id="answers differ",
        ),
        pytest.param(
            lambda result: replace(result, verification=replace(agreement(), explained=("request 1: person is off",))),
            ["are those of the whole models", "rounding at cuts explains: request 1: person is off"],
            True,
            id="rounding explains a difference",
        ),
        pytest.param(
            lambda result: replace(result, phases=result.phases[1:]),
            ["objective of 99% is missed"],
            False,
            id="too late",
        ),
        pytest.param(lambda result: replace(result, samples=()), ["-"], True, id="no signals"),
        pytest.param(
            lambda result: replace(result, pictures=(READ,)),
            [
                "picture note, 3 lines of text\n  in it     first line\n",
                "  served    first line\n  rapidocr  first line\n",
                "  in it     second line\n  served    (no line)\n  rapidocr  second lime\n",
                "from the text that rapidocr reads, 12 of 22 characters differ (54.55%)",
            ],
            False,
            id="text is read otherwise than by the package",
        ),
        pytest.param(
            lambda result: replace(result, pictures=(replace(READ, served=READ.own),)),
            ["0 of 22 characters differ (0.00%)"],
            True,
            id="text is not what is in the picture, but what the package reads",
        ),
    ],
)
def test_terminal_says_how_it_went(change: Callable[[DemoResult], DemoResult], want: list[str], want_met: bool) -> None:
    result = change(demo_result())
    text = printed(result)

    for part in want:
        assert part in text
    assert slo_met(result) == want_met


def missed(result: DemoResult, slower: float) -> DemoResult:
    """The result with the bad requests of the double load in all phases, and stages that are slower than profiled."""
    phases = tuple(replace(phase, report=result.phases[1].report) for phase in result.phases)
    samples = tuple(
        replace(
            sample,
            signals=sample.signals.model_copy(
                update={
                    "stages": tuple(
                        stage.model_copy(update={"actual_micros": slower * stage.predicted_micros})
                        for stage in sample.signals.stages
                    )
                }
            ),
        )
        for sample in result.samples
    )
    return replace(result, phases=phases, samples=samples)


def test_a_missed_slo_names_slow_stages_the_busy_machine_and_what_to_do() -> None:
    result = missed(demo_result(), slower=1.5)
    reasons = reasons_for_misses(result)

    assert len(reasons) == len(stage_rows(result)) + 1
    assert "ms for a batch; its profile has" in reasons[0]
    assert reasons[-1] == (
        "the machine was 50% busy; stop other programs, or plan for less load: partita demo "
        "--example examples/traffic-emulated --rate 125"
    )
    assert set(reasons) <= set(printed(result).splitlines())


def test_stages_as_fast_as_their_profile_are_not_named() -> None:
    assert len(reasons_for_misses(missed(demo_result(), slower=1.0))) == 1


def test_a_met_slo_needs_no_reasons() -> None:
    assert reasons_for_misses(demo_result()) == ()
