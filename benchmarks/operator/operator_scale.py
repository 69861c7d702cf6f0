"""One operator and a population: the time until every session is ready, and the cost of that and of the idle state.

On a real API server (etcd, kube-apiserver) with nodes that nobody runs; engine, profiler and planner are doubles that
answer at once or after a second, so that what is measured is the operator: its reads and writes, CPU and memory. Every
session reports traffic whose figures differ from look to look, as real ones do.

Convergence is from the last of the sessions' manifests until all are Ready; then, after a pause, a time of rest. The
operator runs in a process of its own. The last line is a summary in JSON; the exit code is 1 if not all sessions get
ready.

    python benchmarks/operator/operator_scale.py [--sessions 500] [--pools 50] [--nodes 5000] [--rest 60] [--quick]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.operator.operator_cases.population import Population, add_sessions, install
from benchmarks.operator.operator_cases.readings import Reader, Reading, between, writes

from partita_devtools.control_plane.binaries import find_binaries
from partita_devtools.control_plane.lifecycle import ControlPlane, control_plane
from partita_devtools.machine.ports import free_ports
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 1200.0
SETTLING_S: Final = 20.0
"""Between the last session's getting ready and the time of rest."""


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--pools", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rest", type=float, default=60.0, help="seconds of rest to measure")
    parser.add_argument("--quick", action="store_true", help="50 sessions, 5 pools, 100 nodes, 30 s of rest")
    options = parser.parse_args()
    if options.quick:
        options.sessions, options.pools, options.nodes, options.rest = 50, 5, 100, 30.0
    population = Population(options.sessions, options.pools, options.nodes)
    with (
        tempfile.TemporaryDirectory() as state,
        control_plane(Path(state), binaries=find_binaries(report=_say), report=_say) as plane,
    ):
        # It would find no kubelet behind the nodes, and write so to each of them.
        plane.stop_controller_manager()
        summary = asyncio.run(measure(plane, population, options.rest))
    print(json.dumps(summary))
    raise SystemExit(summary["ready"] < population.sessions)


async def measure(plane: ControlPlane, population: Population, rest: float) -> dict[str, Any]:
    """The summary."""
    metrics_port, health_port = free_ports(2)
    async with KubernetesClient(await load_config(plane.kubeconfig)) as kubernetes:
        began = time.monotonic()
        await install(kubernetes, population)
        _say(f"{population.nodes} nodes and {population.pools} pools are there after {time.monotonic() - began:.0f} s")
        operated = [sys.executable, str(ROOT / "benchmarks/operator/operator_cases/operated.py")]
        process = await asyncio.create_subprocess_exec(
            *operated, str(plane.kubeconfig), str(metrics_port), str(health_port)
        )
        try:
            reader = Reader(process.pid, metrics_port, plane.url, plane.token)
            await _until_idle(reader)
            empty = reader.read()
            began = time.monotonic()
            await add_sessions(kubernetes, population)
            applied = time.monotonic()
            _say(f"{population.sessions} sessions are there after {applied - began:.0f} s")
            settled = await _until_ready(reader, population.sessions)
            converged = settled.at - applied
            await asyncio.sleep(SETTLING_S)
            before = reader.read()
            await asyncio.sleep(rest)
            after = reader.read()
        finally:
            process.terminate()
            await process.wait()
    return summary(population, converged, empty, settled, before, after)


def summary(
    population: Population, converged: float, empty: Reading, settled: Reading, before: Reading, after: Reading
) -> dict[str, Any]:
    """What was found, with the chart's memory request beside the memory."""
    minutes = (after.at - before.at) / 60
    request = yaml.safe_load((ROOT / "charts/partita/values.yaml").read_text())["resources"]["requests"]["memory"]
    cold, rest = between(empty, settled), between(before, after)
    # The sessions themselves were created by this benchmark.
    cold.get("inferencesessions", {}).pop("POST", None)
    return {
        "sessions": population.sessions,
        "pools": population.pools,
        "nodes": population.nodes,
        "ready": settled.ready,
        "converging": {
            "seconds": round(converged, 1),
            "cpu_seconds": round(settled.cpu_seconds - empty.cpu_seconds, 1),
            "passes": round(settled.passes - empty.passes),
            "cpu_ms_a_pass": _per(settled.cpu_seconds - empty.cpu_seconds, settled.passes - empty.passes),
            "requests_a_session": round(sum(sum(v.values()) for v in cold.values()) / population.sessions, 1),
            "writes_a_session": round(writes(cold) / population.sessions, 1),
            "requests": cold,
        },
        "rest": {
            "writes_a_minute": round(writes(rest) / minutes, 1),
            "reads_a_minute": round((sum(sum(v.values()) for v in rest.values()) - writes(rest)) / minutes, 1),
            "cpu_percent": round(100 * (after.cpu_seconds - before.cpu_seconds) / (after.at - before.at), 1),
            "passes_a_second": round((after.passes - before.passes) / (after.at - before.at), 1),
            "cpu_ms_a_pass": _per(after.cpu_seconds - before.cpu_seconds, after.passes - before.passes),
            "requests": rest,
        },
        "memory_mib": {
            "empty": round(empty.memory_mib),
            "rest": round(after.memory_mib),
            "peak": round(after.peak_mib),
            "chart_requests": request,
        },
    }


async def _until_idle(reader: Reader) -> None:
    """Until the operator serves its metrics and has looked at every pool."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if reader.read().passes:
                break
        except (httpx.HTTPError, OSError):
            pass
        await asyncio.sleep(0.5)
    await asyncio.sleep(10)


async def _until_ready(reader: Reader, sessions: int) -> Reading:
    """The first reading with all sessions ready; the last one at the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    said = time.monotonic()
    while True:
        reading = reader.read()
        if reading.ready >= sessions or time.monotonic() > deadline:
            return reading
        if time.monotonic() - said > 10:
            said = time.monotonic()
            _say(f"{reading.ready} of {sessions} sessions are ready")
        await asyncio.sleep(0.5)


def _per(seconds: float, passes: float) -> float:
    return round(1000 * seconds / max(1.0, passes), 2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
