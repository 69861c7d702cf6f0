"""One rate offered to a live session, and the same arrivals in the simulator."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from benchmarks.serving.serving_cases.emulated import MODULE, EmulatedSession
from numpy.typing import NDArray

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig, run_load
from partita_runtime.load.report import ANSWERED, LoadReport
from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.trace import RecordedCall
from partita_runtime.serving.protocol.inference_client import encode_request
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.simulation.emulation.noise import NO_DELAYS, Delays
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.simulator import simulate

PIPELINE = f"{MODULE}/p0"


@dataclass(frozen=True)
class OfferedRate:
    """One rate, and when it was offered, in microseconds of the machine's monotonic clock."""

    rate: float
    times: NDArray[np.float64]
    """When requests were really sent, in seconds from the beginning."""
    began: int
    ended: int
    goodput: float
    """Requests per second that were answered within the SLO."""
    live: LoadReport


@dataclass(frozen=True)
class Recorded:
    """What the live core did while one rate was offered."""

    batch_sizes: dict[int, int]
    delays: Delays
    """Median of the delays that it allowed for a batch's way to its replica."""
    slo_micros: int
    """Median of what was left of the SLO when the core was told of a request."""
    overtaking: float
    """Share of the executions on later stages that began before those of batches that were reserved earlier."""


def offer(url: str, app: EmulatedSession, rate: float, seconds: float, seed: int) -> OfferedRate:
    """Send requests of one sample at this rate (Poisson), and wait for the answers."""
    generator = np.random.default_rng(seed)
    times = arrival_times(ArrivalProcess.POISSON, RateSchedule.constant(rate), seconds, generator)
    sample = np.zeros((1, *app.input.shape), np.float32)
    config = LoadConfig(url, [encode_request({"input": sample})], times, seconds, app.slo_ms / 1000)
    began = now_micros()
    run = asyncio.run(run_load(config))
    ended = now_micros()
    sent = np.sort([record.sent_s for record in run.records])
    good = [r for r in run.records if r.outcome == ANSWERED and r.ended_s - r.sent_s <= config.slo_s]
    return OfferedRate(rate, sent, began, ended, len(good) / seconds, run.report)


def recorded_in(calls: Sequence[RecordedCall], window: OfferedRate) -> Recorded:
    """What the trace holds of this window."""
    sizes: Counter[int] = Counter()
    delays: list[tuple[int, int]] = []
    left: list[int] = []
    now = 0
    latest = (0, 0)
    dispatched: dict[int, Dispatch] = {}
    last_starts: dict[str, int] = {}
    executions = overtaking = 0
    for call in calls:
        if call.method == "set_delays":
            latest = (call.arguments[0], call.arguments[1])
        elif call.method == "arrive":
            now = call.arguments[3]
            if window.began <= now <= window.ended:
                left.append(call.arguments[2] - now)
                delays.append(latest)
        elif call.method == "advance" and window.began <= call.arguments[0] <= window.ended:
            dispatches = [action for action in call.decided if isinstance(action, Dispatch)]
            dispatched |= {dispatch.batch_id: dispatch for dispatch in dispatches}
            sizes.update(len(dispatch.request_ids) for dispatch in dispatches)
        elif call.method == "completed" and call.arguments[0] in dispatched and call.arguments[1] > 0:
            dispatch, stage = dispatched[call.arguments[0]], call.arguments[1]
            worker, start = dispatch.path[stage], dispatch.starts[stage]
            executions += 1
            overtaking += start < last_starts.get(worker, 0)
            last_starts[worker] = max(start, last_starts.get(worker, 0))
    ctrl, per_request = np.median(np.array(delays), axis=0)
    allowed = Delays(int(ctrl), int(per_request))
    return Recorded(dict(sorted(sizes.items())), allowed, int(np.median(left)), overtaking / max(1, executions))


def simulated(
    app: EmulatedSession, window: OfferedRate, seconds: float, delays: Delays, slo_micros: int
) -> SimulationReport:
    """The same arrivals at the same plan, with these delays and this SLO (rounded down to milliseconds)."""
    shortened = replace(app, slo_ms=slo_micros // 1000)
    bandwidth = {name: float(pool.spec.bandwidth) for name, pool in app.pools.items()}
    return simulate(
        shortened.session,
        app.plan.spec,
        app.profiles,
        bandwidth,
        lambda _seconds, _generator: window.times,
        seconds,
        seed=1,
        delays=delays,
        gpus_per_node={name: pool.spec.gpus_per_node for name, pool in app.pools.items()},
    )


def compare(app: EmulatedSession, window: OfferedRate, recorded: Recorded, seconds: float) -> dict[str, Any]:
    """One rate's figures."""
    like = simulated(app, window, seconds, recorded.delays, recorded.slo_micros)
    ideal = simulated(app, window, seconds, NO_DELAYS, app.slo_ms * 1000)
    return {
        "rate": window.rate,
        "offered": round(window.live.offered_rate, 1),
        "attainment_live": round(window.goodput * seconds / max(1, len(window.times)), 4),
        "attainment_simulated": round(like.in_time / max(1, like.offered), 4),
        "overtaking": round(recorded.overtaking, 4),
        "goodput_live": round(window.goodput, 1),
        "goodput_simulated": round(like.goodput, 1),
        "apart": round(abs(window.goodput - like.goodput) / like.goodput, 4),
        "goodput_without_delays": round(ideal.goodput, 1),
        "p50_ms_live": round(window.live.p50_ms or 0.0, 1),
        "p50_ms_simulated": round(like.p50_ms, 1),
        "margins_ms": {
            "sending": round(recorded.delays.ctrl_micros / 1000, 1),
            "sending_a_sample": round(recorded.delays.per_request_micros / 1000, 2),
            "answering": round(app.slo_ms - recorded.slo_micros / 1000, 1),
        },
        "batches_live": recorded.batch_sizes,
        "batches_simulated": dict(like.batch_sizes.get(PIPELINE, {})),
        "batches_without_delays": dict(ideal.batch_sizes.get(PIPELINE, {})),
        "generator_lag_ms": round(window.live.lag_p99_ms, 1),
    }


def say(row: dict[str, Any]) -> None:
    """A table of one rate."""
    replicas = f" {row['replicas']}" if "replicas" in row else ""
    print(
        f"{row['rate']:g}/s{replicas}: in time {row['attainment_live']:.1%} live, {row['attainment_simulated']:.1%} "
        f"simulated; goodput {row['goodput_live']:g} and {row['goodput_simulated']:g} ({row['apart']:.1%} apart), "
        f"{row['goodput_without_delays']:g} without delays; p50 {row['p50_ms_live']:g} and "
        f"{row['p50_ms_simulated']:g} ms; {row['overtaking']:.1%} of executions overtake an earlier one"
    )
    sources = ("batches_live", "batches_simulated", "batches_without_delays")
    totals = [sum(row[source].values()) or 1 for source in sources]
    print("  batch size      live  simulated  without delays")
    for size in sorted({size for source in sources for size in row[source]}):
        live_share, like_share, ideal_share = (
            row[source].get(size, 0) / total for source, total in zip(sources, totals, strict=True)
        )
        print(f"  {size:10}  {live_share:7.1%}  {like_share:9.1%}  {ideal_share:14.1%}", flush=True)
