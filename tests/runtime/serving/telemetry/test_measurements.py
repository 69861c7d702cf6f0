"""Measurements of a frontend: windows over counters, Prometheus' text, delays; and the directory's entries."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.serving.plans import application

from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.scheduling.signals import (
    CoreModuleSignals,
    CorePipelineSignals,
    CoreSignals,
    CoreStageSignals,
    CoreWorkerSignals,
)
from partita_runtime.serving.deploy.directory import FORGET_SECONDS, VERSION, Announcement, Entries, read_announcement
from partita_runtime.serving.dispatch.delays import DelayEstimate
from partita_runtime.serving.telemetry.metrics import metrics_text
from partita_runtime.serving.telemetry.signals import Meter, Outcome, Situation, Snapshot, session_signals
from partita_runtime.serving.transport.wire import PeerAddress

PLAN = application("a").model("m").planned("plan-1", replicas=2).epoch.plan
REF = StageRef("m", "p0", 0)
SITUATION = Situation(session="default/a", plan=PLAN)
SECOND = 1_000_000


def core(
    now: int,
    *,
    in_time: int = 0,
    late: int = 0,
    dropped: int = 0,
    busy: tuple[int, ...] = (0, 0),
    since: int = 0,
    executions: int = 0,
    actual: int = 0,
    sizes: dict[int, int] | None = None,
) -> CoreSignals:
    workers = tuple(f"w{i}" for i in range(len(busy)))
    return CoreSignals(
        now=now,
        plan="plan-1",
        modules={"m": CoreModuleSignals(0, 0, in_time, late, 0, {DropReason.TOO_LATE: dropped}, 0, 0)},
        pipelines={("m", "p0"): CorePipelineSignals(0, 0, in_time, late, sizes or {})},
        stages={REF: CoreStageSignals("emulated", workers, executions, 1000 * executions, actual, 1.0)},
        workers={name: CoreWorkerSignals("n", since, b, False) for name, b in zip(workers, busy, strict=True)},
        stale_reports=0,
    )


def snapshot(at: int, arrived: int, core: CoreSignals | None, source: str = "a core", **outcomes: int) -> Snapshot:
    return Snapshot(at, arrived, {Outcome(name): count for name, count in outcomes.items()}, core, source)


@pytest.mark.parametrize(
    ("actual", "want_said"),
    [
        pytest.param(10_000, "m/p0/0: batches take more than 3 times what the profile", id="ten times slower"),
        pytest.param(100, "m/p0/0: batches take less than 1/3 of what the profile", id="ten times faster"),
        pytest.param(1500, "", id="somewhat slower"),
        pytest.param(0, "", id="not measured"),
    ],
)
def test_profile_that_is_far_off_is_reported(actual: int, want_said: str) -> None:
    after = snapshot(20 * SECOND, 0, core(20 * SECOND, executions=10, actual=10 * actual))

    said = session_signals(SITUATION, snapshot(0, 0, core(0)), after, []).warnings

    assert len(said) == bool(want_said)
    assert all(text.startswith(want_said) for text in said)


LINKED = dataclasses.replace(application("a").model("m"), stages=2, plan_name="plan-1", bandwidth=2e9).epoch.plan
"""Two stages; the module has a budget of 50 ms."""


@pytest.mark.parametrize(
    ("declared", "actual", "want_said"),
    [
        pytest.param(4000, 8000, "take more than 1.5 times what the bandwidth of pool emulated says", id="half"),
        pytest.param(8000, 4000, "take less than two thirds of what the bandwidth of pool emulated says", id="double"),
        pytest.param(4000, 5500, "", id="somewhat slower"),
        pytest.param(10, 900, "", id="too short to matter"),
        pytest.param(0, 0, "", id="not measured"),
    ],
)
def test_bandwidth_that_is_declared_wrong_is_reported(declared: int, actual: int, want_said: str) -> None:
    def at(now: int, transfers: int) -> Snapshot:
        whole = core(now)
        sent = {"transfers": transfers, "link_bits_per_second": 1e9}
        sent |= {"declared_transfer_micros": declared * transfers, "actual_transfer_micros": actual * transfers}
        stages = {REF: whole.stages[REF], REF._replace(stage=1): dataclasses.replace(whole.stages[REF], **sent)}
        return snapshot(now, 0, dataclasses.replace(whole, stages=stages))

    said = session_signals(Situation("default/a", LINKED), at(0, 5), at(20 * SECOND, 15), []).warnings

    assert len(said) == bool(want_said)
    assert all(text.startswith(f"m/p0/1: transfers to it {want_said}") for text in said)


def test_rates_are_of_the_window_only() -> None:
    before = snapshot(10 * SECOND, 100, core(10 * SECOND, in_time=90, dropped=10), in_time=90, too_late=10)
    after = snapshot(
        20 * SECOND,
        300,
        core(20 * SECOND, in_time=240, late=10, dropped=50, busy=(4 * SECOND, 0), executions=10, actual=20_000),
        in_time=240,
        too_late=40,
        late=10,
        cancelled=10,
    )
    signals = session_signals(SITUATION, before, after, [])
    assert (signals.offered_rate, signals.goodput) == (20, 15)
    assert signals.bad_rate == pytest.approx(40 / 190)
    (stage,) = signals.stages
    assert stage.bad_rate == pytest.approx(50 / 200)
    assert stage.idle_fraction == signals.idle_fraction == pytest.approx(0.8)
    assert (stage.planned, stage.ready, stage.predicted_micros, stage.actual_micros) == (2, 2, 1000, 2000)


def test_latencies_are_of_the_window_only() -> None:
    latencies = [(5 * SECOND, 900_000), *((15 * SECOND, 1000 * ms) for ms in range(1, 101))]
    signals = session_signals(SITUATION, snapshot(10 * SECOND, 0, None), snapshot(20 * SECOND, 0, None), latencies)
    assert signals.p50_ms == pytest.approx(50.5)
    assert signals.p99_ms == pytest.approx(99.01)


def test_latencies_older_than_all_windows_are_removed() -> None:
    meter = Meter()
    for second in range(100):
        meter.ended(Outcome.IN_TIME, 1000, second * SECOND, samples=2)
    meter.forget(98 * SECOND)
    assert [*meter.latencies] == [(98 * SECOND, 1000)] * 2 + [(99 * SECOND, 1000)] * 2


def test_without_requests() -> None:
    at = snapshot(SECOND, 0, None)
    signals = session_signals(Situation("default/a", message="no replica yet"), at, at, [])
    assert (signals.plan, signals.stages, signals.message) == (None, (), "no replica yet")
    assert (signals.offered_rate, signals.bad_rate, signals.idle_fraction, signals.p99_ms) == (0, 0, 1, 0)


def test_counters_of_another_core_are_not_subtracted() -> None:
    before = snapshot(10 * SECOND, 0, core(10 * SECOND, in_time=500, sizes={8: 50}), "the core before")
    after = snapshot(
        20 * SECOND, 0, core(20 * SECOND, in_time=30, late=10, sizes={4: 10}, busy=(SECOND, SECOND), since=15 * SECOND)
    )
    signals = session_signals(SITUATION, before, after, [])
    assert signals.batch_sizes == {4: 10}
    assert signals.stages[0].bad_rate == 0.25
    assert signals.stages[0].idle_fraction == pytest.approx(0.8)


def test_a_worker_that_joined_within_the_window_counts_from_then_on() -> None:
    before = snapshot(10 * SECOND, 0, core(10 * SECOND, busy=(3 * SECOND,)))
    now = core(20 * SECOND, busy=(3 * SECOND, 5 * SECOND))
    joined = {**now.workers, "w1": CoreWorkerSignals("n", 15 * SECOND, 5 * SECOND, False)}
    after = snapshot(20 * SECOND, 0, CoreSignals(**{**{f: getattr(now, f) for f in now.__slots__}, "workers": joined}))
    assert session_signals(SITUATION, before, after, []).stages[0].idle_fraction == pytest.approx(10 / 15)


def test_prometheus_text() -> None:
    meter = Meter()
    meter.ended(Outcome.IN_TIME, 50_000, SECOND, samples=3)
    meter.ended(Outcome.OVERLOAD, 1_000, SECOND, samples=1)
    after = snapshot(2 * SECOND, 4, core(2 * SECOND, executions=2, actual=3000, sizes={2: 1}), in_time=3, overload=1)
    signals = session_signals(SITUATION, snapshot(0, 0, None), after, meter.latencies)
    lines = metrics_text(signals, meter).decode().splitlines()
    stage = 'module="m",pipeline="p0",pool="emulated",session="default/a",stage="0"'
    for want in (
        'partita_requests_total{outcome="in_time",session="default/a"} 3.0',
        'partita_requests_total{outcome="overload",session="default/a"} 1.0',
        'partita_goodput{session="default/a"} 1.5',
        'partita_bad_rate{session="default/a"} 0.25',
        'partita_request_latency_seconds{quantile="0.99",session="default/a"} 0.05',
        'partita_batch_size{session="default/a",size="2"} 1.0',
        f"partita_ready_replicas{{{stage}}} 2.0",
        f'partita_stage_latency_seconds{{kind="actual",{stage}}} 0.0015',
    ):
        assert want in lines


@given(
    st.integers(0, 5000),
    st.integers(0, 500),
    st.lists(st.integers(1, 45), min_size=100, max_size=300),
    st.integers(0, 10),
)
def test_delays_that_grow_with_the_batch_are_recognised(base: int, slope: int, sizes: list[int], seed: int) -> None:
    estimate = DelayEstimate(first_guess=7, most=10**9)
    noise = np.random.default_rng(seed).integers(0, 50, len(sizes))
    for size, jitter in zip(sizes, noise.tolist(), strict=True):
        estimate.observe(size, base + slope * size + jitter, now=0)
    got_base, got_slope = estimate.line(now=0)
    delays = base + slope * np.array(sizes) + noise
    assert np.mean(delays <= got_base + (got_slope + 1) * np.array(sizes)) >= 0.97
    if len({*sizes}) > 10:
        assert abs(got_slope - slope) <= 10


@pytest.mark.parametrize(
    ("observed", "now", "want"),
    [
        pytest.param([], 0, (500, 0), id="nothing yet"),
        pytest.param([(1, 100)] * 15, 0, (500, 0), id="not enough"),
        pytest.param([(1, 100), (1, 800), (1, 900)], 0, (800, 0), id="not enough, but longer than the guess"),
        pytest.param([(1, 100)] * 16, 0, (100, 0), id="enough"),
        pytest.param([(1, 100)] * 16, 60 * SECOND, (500, 0), id="too long ago"),
        pytest.param([(1, 90_000)] * 16, 0, (1000, 0), id="more than the maximum"),
        pytest.param([(4, -20)] * 16, 0, (0, 0), id="clocks that disagree"),
    ],
)
def test_delays(observed: list[tuple[int, int]], now: int, want: tuple[int, int]) -> None:
    estimate = DelayEstimate(first_guess=500, most=1000)
    for size, micros in observed:
        estimate.observe(size, micros, now=0)
    assert estimate.line(now) == want


@pytest.mark.parametrize(
    ("per_second", "stall_seconds", "want_counts"),
    [
        pytest.param(100, range(9, 10), False, id="one second of ten at 100 a second"),
        pytest.param(100, range(4, 10), True, id="most of ten seconds at 100 a second"),
        pytest.param(2, range(9, 10), True, id="too few measurements to detect a stall"),
    ],
)
def test_a_stall_counts_only_if_it_lasts(per_second: int, stall_seconds: range, want_counts: bool) -> None:
    estimate = DelayEstimate(first_guess=7, most=10**9)
    for second in range(10):
        for turn in range(per_second):
            delay = 90_000 if second in stall_seconds else 3_000
            estimate.observe(1, delay, now=second * SECOND + turn * SECOND // per_second)

    base, _ = estimate.line(now=10 * SECOND)

    assert (base > 50_000) == want_counts


def announcement(replica: str, session_key: str = "default/a") -> Announcement:
    return Announcement(
        replica=replica,
        session_key=session_key,
        plan="plan-1",
        module="m",
        pipeline="p0",
        stage=0,
        node="n",
        address=PeerAddress(host="127.0.0.1", port=1, token="t"),
        profile="p",
    )


def test_the_directory_forgets_silent_replicas() -> None:
    entries = Entries()
    entries.announce("b", "default/a", "text of b", now=0)
    entries.announce("a", "default/a", "text of a", now=2)
    entries.announce("other", "default/other", "text of other", now=2)
    assert entries.replicas("default/a", now=2) == ["text of a", "text of b"]
    assert entries.replicas("default/a", now=FORGET_SECONDS) == ["text of a"]
    entries.announce("b", "default/a", "text of b", now=FORGET_SECONDS)
    entries.withdraw("a")
    entries.withdraw("never there")
    assert entries.replicas("default/a", now=FORGET_SECONDS) == ["text of b"]


@pytest.mark.parametrize(
    ("without", "more", "want"),
    [
        pytest.param(("can_make_place",), {}, True, id="of an older version"),
        pytest.param((), {"not_known_here": 1}, True, id="of a newer version"),
        pytest.param((), {"version": VERSION + 1}, False, id="of a version with another format"),
        pytest.param(("address",), {"version": VERSION + 1}, False, id="of a version without a field"),
    ],
)
def test_announcements_of_another_version_are_accepted_if_the_format_is_the_same(
    without: tuple[str, ...], more: dict[str, int], want: bool
) -> None:
    there = announcement("a")
    text = json.dumps({k: v for k, v in there.model_dump(mode="json").items() if k not in without} | more)
    assert read_announcement(text) == (there if want else None)
