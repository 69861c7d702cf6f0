"""The same plan under the same arrivals, live on Ray Serve with emulated GPUs and in the simulator, side by side.

One model in two stages, two emulated GPUs each; Poisson arrivals at several rates, the last above what the GPUs carry.
The live frontend records what its scheduling core is told and decides: batch sizes are from there, and so are the
margins of the SLO that it keeps free for the ways between the processes. The simulation is run with those margins (the
medians), and a second time without any. Goodput is of answers within the SLO, live as the client sees them, over HTTP,
from when it sent the request: the load comes from the same machine, and where it falls behind its schedule, the
simulation gets the times at which requests were really sent. Where it is far behind, which means that the machine has
other things to do, it measures again, up to three times, and keeps the best. The last line is a summary in JSON.

    python benchmarks/serving/live_vs_simulated.py [--seconds 30] [--rates 15,30,45,75]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.emulated import MODULE, POOL, EmulatedSession
from benchmarks.serving.serving_cases.served import await_until, base_url, put, python_path, runs

from partita_api.inferencesession import ArrivalProcess
from partita_api.session.module import TensorSpec
from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig, run_load
from partita_runtime.load.report import ANSWERED, LoadReport
from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.trace import RecordedCall, read_trace
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.protocol.inference_client import encode_request
from partita_runtime.simulation.emulation.noise import NO_DELAYS, Delays
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.simulator import simulate

PIPELINE = f"{MODULE}/p0"
WARM_UP_RATE, WARM_UP_SECONDS = 30.0, 8.0
MOST_ATTEMPTS = 3
WANTED = 0.05
"""Largest allowed difference of goodputs."""


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


def main() -> None:
    """Runs both, and compares."""
    options = _arguments().parse_args()
    app = EmulatedSession(
        name="compared",
        gpus=2,
        alpha_micros=60_000,
        beta_micros=150_000,
        slo_ms=options.slo,
        batch_size=16,
        input=TensorSpec(shape=(16,)),
        stages=2,
    )
    with tempfile.TemporaryDirectory() as state:
        traces = Path(state) / "traces"
        traces.mkdir()
        config = RayClusterConfig(nodes=(RayClassNode(POOL, slots=4),), environment={"PYTHONPATH": python_path()})
        with ray_cluster(Path(state) / "ray", config) as cluster:
            windows = live(cluster, app, options, traces)
        (trace,) = traces.iterdir()
        _, recorded = read_trace(trace.read_text().splitlines())
        calls = [*recorded]
    rows = [compare(app, window, recorded_in(calls, window), options.seconds) for window in windows]
    for row in rows:
        say(row)
    close = all(row["apart"] <= WANTED for row in rows)
    print(json.dumps({"slo_ms": app.slo_ms, "seconds": options.seconds, "within_5_percent": close, "rates": rows}))


def live(cluster: RayCluster, app: EmulatedSession, options: argparse.Namespace, traces: Path) -> list[OfferedRate]:
    """Offer every rate in turn; the trace is complete once this has taken the session down again."""
    serving = ServingOptions(stage_cpus=0.1, frontend_cpus=0.1, frontend={"traceDirectory": str(traces)})
    applications = app.applications(serving)
    put(cluster, applications)
    url = f"{base_url(cluster)}/{app.key}/v2/models/{app.name}/infer"

    def offer(rate: float, seconds: float) -> OfferedRate:
        times = arrival_times(
            ArrivalProcess.POISSON, RateSchedule.constant(rate), seconds, np.random.default_rng(options.seed)
        )
        sample = np.zeros((1, *app.input.shape), np.float32)
        config = LoadConfig(url, [encode_request({"input": sample})], times, seconds, app.slo_ms / 1000)
        began = time.monotonic_ns() // 1000
        run = asyncio.run(run_load(config))
        ended = time.monotonic_ns() // 1000
        sent = np.sort([record.sent_s for record in run.records])
        good = [r for r in run.records if r.outcome == ANSWERED and r.ended_s - r.sent_s <= config.slo_s]
        return OfferedRate(rate, sent, began, ended, len(good) / seconds, run.report)

    def offer_patiently(rate: float) -> OfferedRate:
        best = offer(rate, options.seconds)
        for _ in range(MOST_ATTEMPTS - 1):
            if not best.live.warnings:
                break
            best = min(best, offer(rate, options.seconds), key=lambda window: window.live.lag_p99_ms)
        return best

    await_until(lambda: runs(cluster, applications) and offer(10.0, 2.0).live.attainment == 1, "all is answered")
    offer(WARM_UP_RATE, WARM_UP_SECONDS)
    windows = [offer_patiently(rate) for rate in options.rates]
    put(cluster, [])
    await_until(lambda: runs(cluster, []), "everything is taken down")
    return windows


def recorded_in(calls: Sequence[RecordedCall], window: OfferedRate) -> Recorded:
    """What the trace holds of this window."""
    sizes: Counter[int] = Counter()
    delays: list[tuple[int, int]] = []
    left: list[int] = []
    now = 0
    latest = (0, 0)
    for call in calls:
        if call.method == "set_delays":
            latest = (call.arguments[0], call.arguments[1])
        elif call.method == "arrive":
            now = call.arguments[3]
            if window.began <= now <= window.ended:
                left.append(call.arguments[2] - now)
                delays.append(latest)
        elif call.method == "advance" and window.began <= call.arguments[0] <= window.ended:
            sizes.update(len(action.request_ids) for action in call.decided if isinstance(action, Dispatch))
    ctrl, per_request = np.median(np.array(delays), axis=0)
    return Recorded(dict(sorted(sizes.items())), Delays(int(ctrl), int(per_request)), int(np.median(left)))


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
    )


def compare(app: EmulatedSession, window: OfferedRate, recorded: Recorded, seconds: float) -> dict[str, Any]:
    """One rate's figures."""
    like = simulated(app, window, seconds, recorded.delays, recorded.slo_micros)
    ideal = simulated(app, window, seconds, NO_DELAYS, app.slo_ms * 1000)
    return {
        "rate": window.rate,
        "offered": round(window.live.offered_rate, 1),
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
    print(
        f"{row['rate']:g}/s: goodput {row['goodput_live']:g} live, {row['goodput_simulated']:g} simulated "
        f"({row['apart']:.1%} apart), {row['goodput_without_delays']:g} without delays; "
        f"p50 {row['p50_ms_live']:g} and {row['p50_ms_simulated']:g} ms"
    )
    sources = ("batches_live", "batches_simulated", "batches_without_delays")
    totals = [sum(row[source].values()) or 1 for source in sources]
    print("  batch size      live  simulated  without delays")
    for size in sorted({size for source in sources for size in row[source]}):
        live_share, like_share, ideal_share = (
            row[source].get(size, 0) / total for source, total in zip(sources, totals, strict=True)
        )
        print(f"  {size:10}  {live_share:7.1%}  {like_share:9.1%}  {ideal_share:14.1%}", flush=True)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement (default 30)")
    parser.add_argument("--slo", type=int, default=1500, help="milliseconds in which to answer (default 1500)")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals (default 1)")
    parser.add_argument(
        "--rates",
        type=lambda text: tuple(float(rate) for rate in text.split(",")),
        default=(15.0, 30.0, 45.0, 75.0),
        help="requests per second, one after the other (default 15,30,45,75)",
    )
    return parser


if __name__ == "__main__":
    main()
