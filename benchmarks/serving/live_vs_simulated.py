"""The same plan under the same arrivals, live on Ray Serve with emulated GPUs and in the simulator, side by side.

One model in two stages, two emulated GPUs each; Poisson arrivals at several rates, the last above what the GPUs carry.
The live frontend records what its scheduling core is told and decides: batch sizes are from there, and so are the
margins of the SLO that it keeps free for the ways between the processes. The simulation is run with those margins (the
medians), and a second time without any. Goodput is of answers within the SLO, live as the client sees them, over HTTP,
from when it sent the request: the load comes from the same machine, and where it falls behind its schedule, the
simulation gets the times at which requests were really sent. Where it is far behind, which means that the machine has
other things to do, it measures again, up to three times, and keeps the best. The last line is a summary in JSON.

With `--megabits` it uses no Ray: the replicas are on four nodes with a slow network (network namespaces, which need
root), two GPUs on each. Two frontends are compared: replicas keep to what the core of the first one has reserved; they
run batches of the second one in order of arrival, and send them on at once.

    python benchmarks/serving/live_vs_simulated.py [--seconds 30] [--rates 15,30,45,75]
    python benchmarks/serving/live_vs_simulated.py --megabits 60 --slo 2000 --rates 30,42,60
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.network_cases.nodes import Node, nodes
from benchmarks.serving.network_cases.served import frontends
from benchmarks.serving.serving_cases.compared import OfferedRate, compare, offer, recorded_in, say
from benchmarks.serving.serving_cases.emulated import POOL, EmulatedSession
from benchmarks.serving.serving_cases.served import await_until, base_url, put, python_path, runs

from partita_api.session.module import TensorSpec
from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_runtime.scheduling.trace import RecordedCall, read_trace
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.session.settings import FrontendSettings

WARM_UP_RATE, WARM_UP_SECONDS = 30.0, 8.0
MOST_ATTEMPTS = 3


def main() -> None:
    """Runs both, and compares."""
    options = _arguments().parse_args()
    rows = on_ray(options) if options.megabits is None else over_network(options)
    for row in rows:
        say(row)
    apart = max(row["apart"] for row in rows)
    print(json.dumps({"slo_ms": options.slo, "seconds": options.seconds, "apart": apart, "rates": rows}))


def on_ray(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All replicas on this machine, whose network takes no time."""
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
        calls = calls_in(traces)
    return [compare(app, window, recorded_in(calls, window), options.seconds) for window in windows]


def over_network(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two nodes for each stage, with two GPUs each, which share the node's slow network."""
    app = EmulatedSession(
        name="compared",
        gpus=4,
        alpha_micros=100_000,
        beta_micros=500_000,
        slo_ms=options.slo,
        batch_size=8,
        input=TensorSpec(shape=(16,)),
        stages=2,
        cut_elements=options.cut_kilobytes * 500,
        bandwidth=f"{options.megabits:g}M",
        gpus_per_node=2,
    )
    with tempfile.TemporaryDirectory() as state, nodes(4, options.megabits) as made:
        windows = asyncio.run(offered(app, made, options, Path(state)))
        calls = {name: calls_in(Path(state) / name) for name in windows}
    return [
        {"replicas": name, **compare(app, window, recorded_in(calls[name], window), options.seconds)}
        for each in zip(*([(name, window) for window in found] for name, found in windows.items()), strict=True)
        for name, window in each
    ]


async def offered(
    app: EmulatedSession, made: list[Node], options: argparse.Namespace, state: Path
) -> dict[str, list[OfferedRate]]:
    """Offer every rate to a frontend with reserved order and to one without, each of them first in turn."""
    settings = {}
    for name, reserved in (("reserved", True), ("on-arrival", False)):
        (state / name).mkdir()
        settings[name] = FrontendSettings(
            function_processes=1, trace_directory=str(state / name), reserved_order=reserved
        )
    windows: dict[str, list[OfferedRate]] = {name: [] for name in settings}
    loop, spawned = asyncio.get_running_loop(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawned) as generator:
        async with frontends(app, settings, made) as urls:
            for url in urls.values():
                await loop.run_in_executor(generator, offer, url, app, WARM_UP_RATE, WARM_UP_SECONDS, 0)
            for number, rate in enumerate(options.rates):
                for name, url in [*urls.items()][:: -1 if number % 2 else 1]:
                    windows[name].append(
                        await loop.run_in_executor(generator, offer, url, app, rate, options.seconds, options.seed)
                    )
    return windows


def calls_in(folder: Path) -> list[RecordedCall]:
    """What the one trace in a folder holds."""
    (trace,) = folder.iterdir()
    return [*read_trace(trace.read_text().splitlines())[1]]


def live(cluster: RayCluster, app: EmulatedSession, options: argparse.Namespace, traces: Path) -> list[OfferedRate]:
    """Offer every rate in turn; the trace is complete once this has taken the session down again."""
    serving = ServingOptions(stage_cpus=0.1, frontend_cpus=0.1, frontend={"traceDirectory": str(traces)})
    applications = app.applications(serving)
    put(cluster, applications)
    url = f"{base_url(cluster)}/{app.key}/v2/models/{app.name}/infer"

    def offer_patiently(rate: float) -> OfferedRate:
        best = offer(url, app, rate, options.seconds, options.seed)
        for _ in range(MOST_ATTEMPTS - 1):
            if not best.live.warnings:
                break
            again = offer(url, app, rate, options.seconds, options.seed)
            best = min(best, again, key=lambda window: window.live.lag_p99_ms)
        return best

    def answers() -> bool:
        return runs(cluster, applications) and offer(url, app, 10.0, 2.0, 0).live.attainment == 1

    await_until(answers, "all is answered")
    offer(url, app, WARM_UP_RATE, WARM_UP_SECONDS, 0)
    windows = [offer_patiently(rate) for rate in options.rates]
    put(cluster, [])
    await_until(lambda: runs(cluster, []), "everything is taken down")
    return windows


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement (default 30)")
    parser.add_argument("--slo", type=int, default=1500, help="milliseconds in which to answer (default 1500)")
    parser.add_argument(
        "--megabits", type=float, help="bandwidth of each node: run without Ray, on nodes with a slow network"
    )
    parser.add_argument(
        "--cut-kilobytes", type=int, default=250, help="what a sample has between the stages there (default 250)"
    )
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
