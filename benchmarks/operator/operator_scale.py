"""One operator and a population: how long until every session is ready, and what that, rest and a restart cost.

On a real API server (etcd, kube-apiserver). KWOK plays the kubelets of the nodes, if it is found: $KWOK, else `kwok` on
PATH. Without it the nodes are objects that nobody runs. Engine, profiler and planner are doubles that answer at once or
after a second, so that what is measured is the operator: its reads and writes, CPU and memory. Every session reports
traffic whose figures differ from look to look, as real ones do. The operator has the account and the rights of the
chart, so the API server's priority and fairness applies to it. Requests are those of the audit log.

Converging is from the last of the sessions' manifests until all are Ready. After a pause there is a time of rest. Then
the operator is stopped and started, and killed and started. Ten sessions are changed while it is away: a restart is
over when the new process has looked at every session, and these ten are Ready with their new spec. The last line is a
summary in JSON; the exit code is 1 if not all sessions get ready.

    python benchmarks/operator/operator_scale.py [--sessions 500] [--pools 50] [--nodes 5000] [--rest 60] [--quick]
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.operator.operator_cases.account import USER, create_account
from benchmarks.operator.operator_cases.kwok import find_kwok, kubelets, version_of
from benchmarks.operator.operator_cases.population import Population, add_sessions, changed_sessions, install
from benchmarks.operator.operator_cases.readings import Reader, Reading, by_resource, fairness, writes

from partita_devtools.control_plane.audit import AuditedRequest
from partita_devtools.control_plane.binaries import find_binaries
from partita_devtools.control_plane.lifecycle import ControlPlane, control_plane
from partita_devtools.machine.ports import free_ports
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 1200.0
EVERY_S: Final = 4.0
"""Between two readings. Each one is a scrape of the operator's metrics, which takes its time."""
SETTLING_S: Final = 60.0
"""Between the last session's getting ready and the time of rest; longer than the autoscaler's cool-down, 30 s."""
OPERATED: Final = ROOT / "benchmarks/operator/operator_cases/operated.py"


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
    kwok = find_kwok()
    population = Population(options.sessions, options.pools, options.nodes, kubelets=kwok is not None)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(
            control_plane(directory / "plane", binaries=find_binaries(report=_say), report=_say, audited_users=(USER,))
        )
        # It would find no kubelet behind the nodes, or one that is late, and write so to each of them.
        plane.stop_controller_manager()
        if kwok is not None:
            stack.enter_context(kubelets(kwok, plane.kubeconfig, directory))
        found = asyncio.run(measure(plane, population, options.rest, directory))
    print(json.dumps({"kubelets": version_of(kwok) if kwok is not None else "none", **found}))
    raise SystemExit(found["ready"] < population.sessions)


@dataclass
class Operator:
    """The operator's process, which is started several times with the same ports."""

    plane: ControlPlane
    arguments: tuple[str, ...]
    metrics_port: int
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> Reader:
        """Start it, and return what reads it."""
        self.process = await asyncio.create_subprocess_exec(sys.executable, str(OPERATED), *self.arguments)
        return Reader(self.process.pid, self.metrics_port, self.plane)

    async def stop(self, *, kill: bool = False) -> None:
        """Stop it by SIGTERM, or SIGKILL."""
        if self.process is not None and self.process.returncode is None:
            (self.process.kill if kill else self.process.terminate)()
            await self.process.wait()


async def measure(plane: ControlPlane, population: Population, rest: float, directory: Path) -> dict[str, Any]:
    """The summary."""
    metrics_port, health_port = free_ports(2)
    account, engine = directory / "operator.kubeconfig", directory / "engine"
    engine.mkdir()
    create_account(plane, account, {})
    operator = Operator(plane, (str(account), str(metrics_port), str(health_port), str(engine)), metrics_port)
    async with KubernetesClient(await load_config(plane.kubeconfig)) as kubernetes:
        began = time.monotonic()
        await install(kubernetes, population)
        _say(f"{population.nodes} nodes and {population.pools} pools are there after {time.monotonic() - began:.0f} s")
        try:
            reader = await operator.start()
            await _until(reader, lambda reading: reading.passes > 0, "has looked at a pool")
            await asyncio.sleep(10)
            empty = reader.read()
            await add_sessions(kubernetes, population)
            applied = time.monotonic()
            _say(f"{population.sessions} sessions are there; the load of the machine is {os.getloadavg()[0]:.1f}")
            settled = await _until(reader, lambda reading: reading.ready >= population.sessions, "is Ready")
            await asyncio.sleep(SETTLING_S)
            before = reader.read()
            await asyncio.sleep(rest)
            after = reader.read()
            _say(f"after a time of rest the load of the machine is {os.getloadavg()[0]:.1f}")
            restarts = {}
            for number, way in enumerate(("stopped", "killed"), start=1):
                await operator.stop(kill=way == "killed")
                changed = await changed_sessions(kubernetes, population, number)
                restarts[way] = await _restart(operator, changed, population.sessions)
        finally:
            await operator.stop()
    return {
        **_population(population, settled),
        **_figures(population, applied, empty, settled, before, after),
        "restart_seconds": restarts,
        "fairness": fairness(plane),
    }


async def _restart(operator: Operator, changed: Callable[[], Any], sessions: int) -> dict[str, float]:
    """Seconds from the start of a process until it has done what."""
    began = time.monotonic()
    reader = await operator.start()
    looked = await _until(reader, lambda reading: reading.looked_at >= sessions, "has looked at every session")
    while True:
        if await changed():
            break
        await asyncio.sleep(EVERY_S)
    done = time.monotonic()
    read = reader.read()
    return {
        "all_looked_at": round(looked.at - began, 1),
        "changes_served": round(done - began, 1),
        "writes": writes((*looked.requests, *read.requests)),
        "cpu_seconds": round(read.cpu_seconds, 1),
    }


def _population(population: Population, settled: Reading) -> dict[str, Any]:
    return {
        "sessions": population.sessions,
        "pools": population.pools,
        "nodes": population.nodes,
        "ready": settled.ready,
    }


def _figures(
    population: Population, applied: float, empty: Reading, settled: Reading, before: Reading, after: Reading
) -> dict[str, Any]:
    """What was found, with the chart's memory request beside the memory."""
    seconds = after.at - before.at
    request = yaml.safe_load((ROOT / "charts/partita/values.yaml").read_text())["resources"]["requests"]["memory"]
    cpu, passes = settled.cpu_seconds - empty.cpu_seconds, settled.passes - empty.passes
    resting = after.passes - before.passes
    return {
        "converging": {
            "seconds": round(settled.at - applied, 1),
            "cpu_seconds": round(cpu, 1),
            "passes": round(passes),
            "cpu_ms_a_pass": _per(cpu, passes),
            "requests_a_session": round(len(settled.requests) / population.sessions, 1),
            "writes_a_session": round(writes(settled.requests) / population.sessions, 1),
            "throttled": sum(request.is_throttled for request in settled.requests),
            "requests": by_resource(settled.requests),
        },
        "rest": {
            "writes_a_minute": round(60 * writes(after.requests) / seconds, 1),
            "reads_a_minute": round(60 * sum(not r.is_write for r in after.requests) / seconds, 1),
            "cpu_percent": round(100 * (after.cpu_seconds - before.cpu_seconds) / seconds, 1),
            "passes_a_second": round(resting / seconds, 1),
            "cpu_ms_a_pass": _per(after.cpu_seconds - before.cpu_seconds, resting),
            "throttled": sum(request.is_throttled for request in after.requests),
            "requests": by_resource(after.requests),
            "written": sorted({f"{r.verb} {r.resource} {r.name}" for r in after.requests if r.is_write})[:20],
        },
        "memory_mib": {
            "empty": round(empty.memory_mib),
            "rest": round(after.memory_mib),
            "peak": round(after.peak_mib),
            "chart_requests": request,
        },
    }


async def _until(reader: Reader, accepts: Callable[[Reading], bool], what: str) -> Reading:
    """The first reading that is accepted, or the last one at the deadline, with all requests since the call."""
    said = time.monotonic()
    deadline = said + DEADLINE_S
    requests: list[AuditedRequest] = []
    while True:
        try:
            reading = reader.read()
        except (httpx.HTTPError, OSError):
            if time.monotonic() > deadline:
                raise
        else:
            requests += reading.requests
            if accepts(reading) or time.monotonic() > deadline:
                return replace(reading, requests=tuple(requests))
            if time.monotonic() - said > 10:
                said = time.monotonic()
                _say(f"waiting until it {what}: {reading.looked_at} looked at, {reading.ready} ready")
        await asyncio.sleep(EVERY_S)


def _per(seconds: float, passes: float) -> float:
    return round(1000 * seconds / max(1.0, passes), 2)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
