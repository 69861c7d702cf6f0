"""Holds Partita's data plane under steady and bursty load, kills its processes, and accounts for every request.

On a local Ray cluster with emulated GPUs a model in two stages, and a function behind it, are served for N minutes: 40
seconds of steady Poisson arrivals, then 20 seconds of bursts, and again. Meanwhile stage replicas, whole nodes, Serve's
controller and the directory of replicas are killed at random. Every request has a number, which its answer must have.

What must hold, or the exit code is 1: each request sent was either answered, with its own answer, or refused with an
explanation (503 or 504); the frontend counts as many; once the killing is over all replicas come back; the frontend was
never restarted, and its memory does not grow by more than 2 MiB a minute in the second half (of ten minutes or more).
With `--kill frontend`, requests that were pending while there was no frontend count as broken instead, and the
frontend's own count and memory are not checked. The last line is a summary in JSON.

    python benchmarks/serving/soak.py [--minutes 10] [--seed 1] [--rate 30] [--burst 150] [--kill-seconds 8]
                                      [--kill frontend]
"""

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.accounted import LoadAccount, send_all
from benchmarks.serving.serving_cases.emulated import POOL, EmulatedSession
from benchmarks.serving.serving_cases.kills import KINDS, SPARING, Killer
from benchmarks.serving.serving_cases.served import (
    await_until,
    base_url,
    measurements,
    put,
    python_path,
    replicas,
    runs,
)

from partita_api.inferencesession import ArrivalProcess
from partita_api.session.module import TensorSpec
from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.serving.deploy.applications import ServingOptions

FRONTEND_NODE = "frontend"
STAGES, REPLICAS = 2, 2
STEADY_SECONDS, BURSTY_SECONDS, BURST_SECONDS = 40.0, 20.0, 2.0
SAMPLE_SECONDS = 1.0
"""How often the frontend's memory is sampled."""
JUDGED_MINUTES = 10.0
"""Shorter runs do not check the memory: caches and buffers of connections still grow."""
MOST_GROWTH = 2.0
"""MiB a minute that the frontend may grow by in the second half: memory for the most connections at once is kept."""


def schedule(minutes: float, rate: float, burst: float, seed: int) -> NDArray[np.float64]:
    """When requests are sent, in seconds: `rate` a second, and in each minute's last third `burst` on and off."""
    steps: dict[float, float] = {}
    for minute in range(int(np.ceil(minutes))):
        steps[60.0 * minute] = rate
        for number in range(int(BURSTY_SECONDS / BURST_SECONDS)):
            steps[60.0 * minute + STEADY_SECONDS + number * BURST_SECONDS] = 0.0 if number % 2 else burst
    profile = RateSchedule(tuple(steps), tuple(steps.values()))
    return arrival_times(ArrivalProcess.POISSON, profile, 60.0 * minutes, np.random.default_rng(seed))


class Memory:
    """Resident memory of one process, sampled while it lives."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self.samples: list[tuple[float, float]] = []
        """(minutes since the start, MiB)."""
        self._began = time.monotonic()

    def sample(self) -> None:
        """Take one sample; does nothing if the process is gone."""
        try:
            lines = self._status.read_text().splitlines()
        except OSError:
            return
        kib = [int(line.split()[1]) for line in lines if line.startswith("VmRSS:")]
        if kib:
            self.samples.append(((time.monotonic() - self._began) / 60, kib[0] / 1024))

    def by_minute(self) -> list[float]:
        """MiB at the beginning, and about each minute after it."""
        found: list[float] = []
        for minutes, mib in self.samples:
            if minutes >= len(found):
                found.append(round(mib, 1))
        return found

    def growth(self) -> float:
        """MiB a minute, by a line through the samples of the second half; 0 if there are too few."""
        later = self.samples[len(self.samples) // 2 :]
        if len(later) < 2:
            return 0.0
        minutes, mib = np.array(later).T
        return float(np.polyfit(minutes, mib, 1)[0])


def main() -> None:
    """Starts everything, runs the load, and prints whether all conditions held."""
    options = _arguments().parse_args()
    app = EmulatedSession(
        name="soak",
        gpus=REPLICAS,
        alpha_micros=1053,
        beta_micros=5072,
        slo_ms=options.slo,
        batch_size=16,
        input=TensorSpec(shape=(16,)),
        stages=STAGES,
        function="benchmarks.serving.serving_cases.echo:number",
    )
    every = STAGES * REPLICAS
    config = RayClusterConfig(
        nodes=(RayClassNode(FRONTEND_NODE, slots=1), RayClassNode(POOL, slots=every), RayClassNode(POOL, slots=every)),
        environment={"PYTHONPATH": python_path()},
    )
    with tempfile.TemporaryDirectory() as state, ray_cluster(Path(state), config) as cluster:
        summary = soak(cluster, app, options)
    print(json.dumps(summary))
    raise SystemExit(bool(summary["problems"]))


def soak(cluster: RayCluster, app: EmulatedSession, options: argparse.Namespace) -> dict[str, Any]:
    """Load and kills on the cluster; the summary."""
    url = f"{base_url(cluster)}/{app.key}"
    applications = app.applications(
        ServingOptions(stage_cpus=0.1, frontend_cpus=0.1, frontend_resources={f"partita-pool-{FRONTEND_NODE}": 0.5})
    )
    put(cluster, applications)
    await_until(lambda: runs(cluster, applications) and all_ready(url), "every replica is ready")
    frontend = frontend_pid(cluster)
    memory, account = Memory(frontend), LoadAccount()
    times = schedule(options.minutes, options.rate, options.burst, options.seed)
    infer = f"{url}/v2/models/{app.name}/infer"
    began = time.monotonic()

    def say(event: str) -> None:
        so_far = f"{account.sent} sent, {account.answered} answered, {account.refused.total()} refused"
        print(f"{time.monotonic() - began:6.1f} s: {event} ({so_far})", flush=True)

    load = threading.Thread(
        target=lambda: asyncio.run(send_all(infer, app.input.shape, times.tolist(), app.slo_ms / 1000, account))
    )
    sampling = threading.Thread(target=_sample_while, args=(load, memory))
    load.start()
    sampling.start()
    killer = Killer(cluster, [f"{POOL}-0", f"{POOL}-1"], options.kill, options.seed, lambda: answers(url))
    killer.kill_until(lambda: not load.is_alive(), options.kill_seconds, say)
    load.join()
    sampling.join()
    say("the load is over")
    recovered = _comes_back(cluster, applications, url)
    return _summary(options, account, killer, memory, frontend_ended(url), recovered, frontend, _pid_or_none(cluster))


def all_ready(url: str) -> bool:
    """Whether the frontend has every planned replica of every stage."""
    try:
        answer = measurements(url)
        stages = answer.json()["stages"] if answer.is_success else []
    except (httpx.HTTPError, ValueError):
        return False
    return bool(stages) and all(stage["ready"] >= stage["planned"] for stage in stages)


def answers(url: str) -> bool:
    """Whether there is a frontend."""
    try:
        return httpx.get(f"{url}/v2/health/live", timeout=2).is_success
    except httpx.HTTPError:
        return False


def frontend_pid(cluster: RayCluster) -> int:
    """The process of the frontend. Raises DevError while Serve does not say."""
    (pid,) = (replica["pid"] for replica in replicas(cluster) if replica["application"].endswith(".frontend"))
    return int(pid)


def frontend_ended(url: str) -> int:
    """How many requests the frontend says have ended, in whatever way; -1 if it does not answer."""
    try:
        text = measurements(url, "metrics").raise_for_status().text
    except httpx.HTTPError:
        return -1
    return round(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "partita_requests_total"
        )
    )


def _sample_while(load: threading.Thread, memory: Memory) -> None:
    while load.is_alive():
        memory.sample()
        time.sleep(SAMPLE_SECONDS)


def _comes_back(cluster: RayCluster, applications: list[dict[str, Any]], url: str) -> bool:
    try:
        await_until(lambda: runs(cluster, applications) and all_ready(url), "every replica is ready again")
    except SystemExit as late:
        print(late, flush=True)
        return False
    return True


def _pid_or_none(cluster: RayCluster) -> int | None:
    try:
        return frontend_pid(cluster)
    except (DevError, ValueError):
        return None


def _summary(
    options: argparse.Namespace,
    account: LoadAccount,
    killer: Killer,
    memory: Memory,
    counted: int,
    recovered: bool,
    frontend: int,
    frontend_now: int | None,
) -> dict[str, Any]:
    growth = memory.growth()
    broken = [request for request in account.unanswered if request.is_of(killer.outages)]
    lost = [request for request in account.unanswered if not request.is_of(killer.outages)]
    one_frontend = not killer.outages
    held = {
        f"{len(lost)} requests were lost": not lost,
        f"{account.wrong} requests got another answer than theirs": account.wrong == 0,
        f"{account.sent - account.ended} requests are not accounted for": account.sent == account.ended,
        f"the frontend counts {counted} requests": not one_frontend or counted == account.sent,
        "not all replicas came back": recovered,
        "the frontend was restarted": not one_frontend or frontend_now == frontend,
        f"the frontend's memory grows by {growth:.2f} MiB a minute": not one_frontend
        or options.minutes < JUDGED_MINUTES
        or growth <= MOST_GROWTH,
    }
    return {
        "minutes": options.minutes,
        "seed": options.seed,
        "sent": account.sent,
        "answered": account.answered,
        "in_time": account.in_time,
        "refused": dict(sorted(account.refused.items())),
        "broken": len(broken),
        "seconds_without_frontend": [round(until - since, 1) for since, until in killer.outages],
        "lost": len(lost),
        "wrong": account.wrong,
        "examples": [*account.examples, *(request.what for request in lost[:10])],
        "counted_by_frontend": counted,
        "killed": dict(killer.killed),
        "recovered": recovered,
        "frontend_mib": memory.by_minute(),
        "growth_mib_a_minute": round(growth, 3),
        "problems": [problem for problem, fine in held.items() if not fine],
    }


def _kinds(text: str) -> Sequence[str]:
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} cannot be killed; {', '.join(KINDS)} can")
    return kinds


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load lasts (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals and kills (default 1)")
    parser.add_argument("--rate", type=float, default=30.0, help="requests per second of the steady load (default 30)")
    parser.add_argument("--burst", type=float, default=150.0, help="requests per second in a burst (default 150)")
    parser.add_argument("--slo", type=int, default=500, help="milliseconds in which to answer (default 500)")
    parser.add_argument("--kill", type=_kinds, default=SPARING, help=f"what is killed, of {','.join(KINDS)}")
    parser.add_argument("--kill-seconds", type=float, default=8.0, help="mean time between kills (default 8)")
    return parser


if __name__ == "__main__":
    main()
