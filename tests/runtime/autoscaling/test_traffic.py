"""When what was counted at an edge counts instead of what is declared."""

from collections import Counter
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.autoscaling.latency import latencies_of, latency_key, percentile
from partita_runtime.autoscaling.traffic import (
    LONGEST_SECONDS,
    EdgeDecision,
    TrafficCounts,
    TrafficHistory,
    decision_key,
    edge_key,
    lasting_edge,
    lasting_latency,
    lasting_shares,
)

EDGE = ("detector", "plates")


def counts(answers: float, taken: float, sub_requests: float) -> TrafficCounts:
    decided = {EdgeDecision.TAKEN: round(taken), EdgeDecision.NOT_TAKEN: round(answers) - round(taken)}
    return TrafficCounts(
        decided={decision_key(*EDGE, decision): count for decision, count in decided.items() if count},
        sent={edge_key(*EDGE): round(sub_requests)} if sub_requests else {},
    )


def history(*parts: tuple[float, float, float, float], every: int = 5) -> TrafficHistory:
    """Parts one after the other: seconds, answers per second, share of them, fan-out."""
    seen, at, total = TrafficHistory().add(0, counts(0, 0, 0), 1), 0, (0.0, 0.0, 0.0)
    for seconds, rate, share, fan_out in parts:
        for _ in range(0, round(seconds), every):
            at += every
            answers, taken = every * rate, every * rate * share
            total = total[0] + answers, total[1] + taken, total[2] + taken * fan_out
            seen = seen.add(at, counts(*total), 1)
    return seen


@pytest.mark.parametrize(
    ("seen", "planned", "want"),
    [
        pytest.param(history((600, 10, 0.2, 1)), 0.2, None, id="as planned"),
        pytest.param(history((600, 10, 0.2, 1.14)), 0.2, None, id="a little above, inside the band"),
        pytest.param(history((600, 10, 0.2, 0.76)), 0.2, None, id="a little below, inside the band"),
        pytest.param(history((55, 100, 0.4, 1)), 0.2, None, id="above, but not for long yet"),
        pytest.param(history((60, 100, 0.4, 1)), 0.2, (0.4, 1), id="a higher share for long enough"),
        pytest.param(history((60, 100, 1, 3)), 2.0, (1, 3), id="a higher fan-out for long enough"),
        pytest.param(history((60, 100, 0.2, 3), (60, 100, 0.6, 1)), 0.6, None, id="the product counts"),
        pytest.param(history((60, 10, 0.4, 1)), 0.2, None, id="too few answers"),
        pytest.param(history((100, 10, 0.4, 1)), 0.2, (0.4, 1), id="enough after a longer time"),
        pytest.param(history((295, 100, 0.1, 1)), 0.2, None, id="below, but not for long yet"),
        pytest.param(history((300, 100, 0.1, 1)), 0.2, (0.1, 1), id="below for long enough"),
        pytest.param(history((300, 10, 0, 1)), 0.2, (1 / 1000, 1), id="never: as if once in a third"),
        pytest.param(history((300, 1, 0, 1)), 0.2, None, id="never, but few were expected"),
        pytest.param(history((1800, 0.1, 1, 5)), 1.0, None, id="few answers do not count, also after half an hour"),
        pytest.param(TrafficHistory(), 1.0, None, id="nothing counted"),
    ],
)
def test_lasting_differences_of_enough_answers_count(
    seen: TrafficHistory, planned: float, want: tuple[float, float] | None
) -> None:
    found = lasting_edge(seen, *EDGE, planned)
    assert (None if found is None else (pytest.approx(found.share), pytest.approx(found.fan_out))) == want


def test_a_counting_that_begins_again_forgets_what_was_counted_before() -> None:
    seen = history((600, 100, 0.8, 1)).add(605, counts(100, 80, 80), 1)
    assert lasting_edge(seen, *EDGE, 0.2) is None


def test_what_was_counted_for_another_generation_does_not_count() -> None:
    seen = history((600, 100, 0.8, 1)).add(605, counts(60_500, 48_400, 48_400), 2)
    assert lasting_edge(seen, *EDGE, 0.2) is None


def test_it_does_not_fall_while_it_may_not() -> None:
    assert lasting_edge(history((600, 100, 0.1, 1)), *EDGE, 0.2, may_fall=False) is None
    assert lasting_edge(history((600, 100, 0.4, 1)), *EDGE, 0.2, may_fall=False) is not None


@pytest.mark.parametrize("every", [1, 2, 7, 31, 100], ids=lambda every: f"counted every {every} s")
def test_the_history_stays_short_and_reaches_back_far_enough(every: int) -> None:
    seen = history((4000, 10, 0.4, 1), every=every)
    times = [at for at, _ in seen.samples]
    assert times[-1] - times[0] >= LONGEST_SECONDS - 100
    assert len(times) <= LONGEST_SECONDS / min(10, max(every, 5)) + 2
    assert all(before < after for before, after in pairwise(times))
    assert lasting_edge(seen, *EDGE, 0.2) is not None


@given(st.floats(0.001, 1), st.floats(0.01, 50), st.floats(0.001, 50))
def test_steady_answers_settle_after_one_change(share: float, fan_out: float, planned: float) -> None:
    seen = history((1800, 1000, share, fan_out), every=60)
    found = lasting_edge(seen, *EDGE, planned)
    assert found is None or lasting_edge(seen, *EDGE, found.share * found.fan_out) is None


def calls(*parts: tuple[float, float, float]) -> TrafficHistory:
    """Parts one after the other: seconds, calls per second, milliseconds that they take; one in 200 takes a second."""
    seen, at, total = TrafficHistory(), 0, Counter[str]()
    for seconds, rate, millis in parts:
        for _ in range(0, round(seconds) + 5, 5):
            seen = seen.add(at, TrafficCounts(endpoint_calls=dict(total)), 1)
            at += 5
            slow = round(5 * rate / 200)
            total[latency_key("plates", 1_000_000)] += slow
            total[latency_key("plates", round(millis * 1000))] += round(5 * rate) - slow
    return seen


@pytest.mark.parametrize(
    ("seen", "planned", "want"),
    [
        pytest.param(calls((600, 40, 40)), 40, None, id="as planned"),
        pytest.param(calls((290, 40, 40)), 100, None, id="faster, but not for long yet"),
        pytest.param(calls((300, 40, 40)), 100, 40, id="faster for long enough"),
        pytest.param(calls((300, 1, 40)), 100, None, id="too few calls"),
        pytest.param(calls((1200, 1, 40)), 100, 40, id="enough after a longer time"),
        pytest.param(calls((60, 40, 80)), 40, 80, id="slower for long enough"),
        pytest.param(calls((300, 40, 40), (25, 40, 80)), 40, None, id="slower, but not for long yet"),
        pytest.param(TrafficHistory(), 100, None, id="nothing counted"),
    ],
)
def test_lasting_latencies_of_enough_calls_count(seen: TrafficHistory, planned: float, want: float | None) -> None:
    found = lasting_latency(seen, "plates", 1000 * planned)
    assert (None if found is None else found / 1000) == (want if want is None else pytest.approx(want, rel=0.1))


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=300), st.sampled_from((0.5, 0.99)))
def test_a_percentile_of_counts_is_that_of_the_latencies_rounded_up(micros: list[int], share: float) -> None:
    counts = Counter(latency_key("plates", each) for each in micros)
    exact = sorted(micros)[ceil(len(micros) * share) - 1]
    found = percentile(latencies_of("plates", counts), share)
    assert min(exact, 1e9) <= found + 1 <= max(exact, 100) * 1.1 + 2


CLASSES = ("bert-s64", "bert-s128", "bert-s512")
DECLARED = (0.5, 0.4, 0.1)


def samples(*parts: tuple[float, float, tuple[float, ...]]) -> TrafficHistory:
    """Parts one after the other: seconds, samples per second, and the shares of the classes."""
    seen, at, total = TrafficHistory().add(0, TrafficCounts(), 1), 0, [0.0, 0.0, 0.0]
    for seconds, rate, shares in parts:
        for _ in range(0, round(seconds), 5):
            at += 5
            total = [count + 5 * rate * share for count, share in zip(total, shares, strict=True)]
            counted = {name: round(count) for name, count in zip(CLASSES, total, strict=True)}
            seen = seen.add(at, TrafficCounts(size_classes=counted), 1)
    return seen


@pytest.mark.parametrize(
    ("seen", "may_fall", "want"),
    [
        pytest.param(samples((600, 100, DECLARED)), True, None, id="as planned"),
        pytest.param(samples((600, 100, (0.48, 0.41, 0.11))), True, None, id="inside the band"),
        pytest.param(samples((55, 100, (0.1, 0.1, 0.8))), True, None, id="not for long yet"),
        pytest.param(samples((60, 100, (0.1, 0.1, 0.8))), True, (0.1, 0.1, 0.8), id="for long enough"),
        pytest.param(
            samples((240, 100, DECLARED), (60, 100, (0.1, 0.1, 0.8))), True, (0.1, 0.1, 0.8), id="not what was before"
        ),
        pytest.param(samples((60, 5, (0.1, 0.1, 0.8))), True, None, id="too few samples"),
        pytest.param(samples((300, 100, (0.54, 0.44, 0.02))), True, (0.54, 0.44, 0.02), id="a rare class is rarer"),
        pytest.param(samples((300, 100, (0.54, 0.44, 0.02))), False, None, id="and may not fall"),
        pytest.param(samples((300, 100, (0.0, 0.0, 1.0))), True, (0.0, 0.0, 1.0), id="only one class"),
        pytest.param(TrafficHistory(), True, None, id="nothing counted"),
    ],
)
def test_lasting_shares_of_size_classes_count_together(
    seen: TrafficHistory, may_fall: bool, want: tuple[float, ...] | None
) -> None:
    found = lasting_shares(seen, CLASSES, DECLARED, may_fall=may_fall)
    assert (None if found is None else pytest.approx(found, abs=0.002)) == want
