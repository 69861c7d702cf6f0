"""How many pictures per second the example `ocr` reads on this machine, beside other ways to run the same networks.

All read the same pictures, of all kinds but the largest, on the CPU:

- `loop`: the package rapidocr as its documentation has it, one picture after the other in one process, which uses all
  cores for a network;
- `processes`: as many processes with the package's pipeline as there are cores, on one thread each;
- `serve`: the same as replicas of Ray Serve, behind HAProxy;
- `serve_pipeline`: a pipeline of Ray Serve, with a deployment for each network, batches by `@serve.batch`, and the
  functions of the example in its ingress; with the best of a few settings, which are tried first;
- `partita`: the session of `examples/ocr` in local mode, or the one at --url. In local mode, the first call profiles
  the networks, which takes minutes. It runs on afterwards: `partita local down` stops it.

Clients send pictures as soon as their last one is answered. `--in-flight` has the numbers of clients; each system is
shown with the number that serves most (`loop` and `processes` have as many clients as processes). What counts are
answers within the SLO. Systems are measured in turns; the table has medians. Characters that differ from those of the
first system are shown, because speed is worth nothing without the answers. The last line is a summary in JSON, with the
rates relative to the other systems.

    python benchmarks/serving/ocr.py [--quick] [--pictures 44] [--repeats 3] [--in-flight 2,4,8] [--slo 30]
                                     [--only SYSTEM]... [--url URL]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from benchmarks.serving.serving_cases import ocr_pipeline, ocr_serve_pipeline
from benchmarks.serving.serving_cases.served import await_until, base_url, put, python_path, runs
from checks.local_mode import serve
from ocr.comparison import served_text
from ocr.pictures import pictures

from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClusterConfig
from partita_runtime.quality.metrics import distance

SYSTEMS = ("loop", "processes", "serve", "serve_pipeline", "partita")
_EACH_KIND = 11
"""So many pictures are one of each kind."""
Read = Callable[[bytes], Sequence[str]]
"""The lines of text of an encoded picture."""


@dataclass(frozen=True)
class Turn:
    """One measurement of one system."""

    rate: float
    """Answers within the SLO, per second."""
    p50_s: float
    p99_s: float
    texts: tuple[str, ...]
    """What was read, in the order of the pictures."""


@dataclass(frozen=True)
class System:
    """A way to read pictures."""

    name: str
    clients: Executor
    read: Read
    in_flight: tuple[int, ...]
    """Numbers of clients to try."""

    def turn(self, encoded: Sequence[bytes], in_flight: int, slo_s: float) -> Turn:
        """Read all pictures once, `in_flight` of them at a time."""
        waiting = iter(enumerate(encoded))
        texts: dict[int, str] = {}
        latencies: list[float] = []

        def client() -> None:
            for number, picture in waiting:
                sent = time.perf_counter()
                lines = self.clients.submit(self.read, picture).result()
                latencies.append(time.perf_counter() - sent)
                texts[number] = "\n".join(lines)

        start = time.perf_counter()
        with ThreadPoolExecutor(in_flight) as threads:
            for done in [threads.submit(client) for _ in range(in_flight)]:
                done.result()
        seconds = time.perf_counter() - start
        return Turn(
            rate=sum(latency <= slo_s for latency in latencies) / seconds,
            p50_s=float(np.quantile(latencies, 0.5)),
            p99_s=float(np.quantile(latencies, 0.99)),
            texts=tuple(texts[number] for number in range(len(encoded))),
        )


@dataclass(frozen=True)
class Row:
    """The best of a system."""

    system: str
    in_flight: int
    rate: float
    p50_s: float
    p99_s: float
    different: int
    """Characters that differ from those of the first system."""


def main() -> None:
    """Measures all systems."""
    options = _arguments().parse_args()
    count, repeats = (_EACH_KIND, 1) if options.quick else (options.pictures, options.repeats)
    encoded = [picture.item() for picture in pictures(count)]
    with ExitStack() as running:
        started = [running.enter_context(systems) for systems in _systems(options, encoded[:_EACH_KIND])]
        systems = [system for several in started for system in several]
        for system in systems:  # the first answers of a process are slower
            system.turn(encoded[:_EACH_KIND], max(system.in_flight), options.slo)
        turns: dict[tuple[str, int], list[Turn]] = {}
        for _ in range(repeats):
            for system in systems:
                for in_flight in system.in_flight:
                    turn = system.turn(encoded, in_flight, options.slo)
                    turns.setdefault((system.name, in_flight), []).append(turn)
                    print(f"{system.name:14} {in_flight} in flight: {turn.rate:.2f}/s", flush=True)
    expected = turns[systems[0].name, systems[0].in_flight[0]][0].texts
    rows = [_best(system, turns, expected) for system in systems]
    print(f"\n{count} pictures, {os.cpu_count()} cores, SLO {options.slo:g} s, medians of {repeats}")
    print(f"{'system':14} {'in flight':>9} {'pictures/s':>10} {'p50 s':>6} {'p99 s':>6} {'different':>9}")
    for row in rows:
        print(
            f"{row.system:14} {row.in_flight:9} {row.rate:10.2f} {row.p50_s:6.2f} {row.p99_s:6.2f} {row.different:9}",
        )
    rates = {row.system: row.rate for row in rows}
    others = [name for name in SYSTEMS[:-1] if "partita" in rates and rates.get(name)]
    ratios = {other: round(rates["partita"] / rates[other], 3) for other in others}
    print(json.dumps({"systems": [asdict(row) for row in rows], "partita_relative_to": ratios}))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each kind of picture once")
    parser.add_argument("--pictures", type=int, default=44, help="pictures of each measurement (default: 44)")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each (default: 3)")
    parser.add_argument("--in-flight", type=_numbers, default=(2, 4, 8), help="numbers of clients (default: 2,4,8)")
    parser.add_argument("--slo", type=float, default=30.0, help="seconds (default: 30, as in the session)")
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="only this system (may be repeated)")
    parser.add_argument("--url", help="a session of the example that runs already")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _systems(options: argparse.Namespace, encoded: Sequence[bytes]) -> list[AbstractContextManager[list[System]]]:
    """`encoded` are pictures to tune with."""
    cores = os.cpu_count() or 1
    wanted = options.only or SYSTEMS
    found: list[AbstractContextManager[list[System]]] = []
    if "loop" in wanted:
        found.append(_processes("loop", 1, None))
    if "processes" in wanted:
        found.append(_processes("processes", cores, 1))
    if by_serve := [name for name in wanted if name.startswith("serve")]:
        found.append(_serve(by_serve, cores, options, encoded))
    if "partita" in wanted:
        found.append(_partita(options.url, options.in_flight))
    return found


@contextmanager
def _processes(name: str, count: int, threads: int | None) -> Iterator[list[System]]:
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, spawned, ocr_pipeline.start, (threads,)) as processes:
        yield [System(name, processes, ocr_pipeline.read_here, (count,))]


@contextmanager
def _serve(
    names: Sequence[str], cores: int, options: argparse.Namespace, encoded: Sequence[bytes]
) -> Iterator[list[System]]:
    """Both ways to use Ray Serve, on one cluster; the other one is idle during a turn."""
    environment = {"PYTHONPATH": python_path(), **ocr_serve_pipeline.ENVIRONMENT}
    config = RayClusterConfig(nodes=(), environment=environment)
    with (
        tempfile.TemporaryDirectory() as state,
        ray_cluster(Path(state), config) as cluster,
        httpx.Client(timeout=600, trust_env=False) as client,
        ThreadPoolExecutor(max(options.in_flight)) as threads,
    ):

        def system(name: str, application: str) -> System:
            read = partial(_read_by_serve, client, f"{base_url(cluster)}/{application}")
            return System(name, threads, read, options.in_flight)

        applications: dict[str, dict[str, Any]] = {}
        systems = []
        if "serve_pipeline" in names:
            systems.append(system("serve_pipeline", ocr_serve_pipeline.NAME))
            best = _tuned(cluster, systems[0], cores, encoded, options.slo)
            applications["serve_pipeline"] = ocr_serve_pipeline.networks_application(best)
        if "serve" in names:
            systems.insert(0, system("serve", ocr_pipeline.NAME))
            applications["serve"] = ocr_pipeline.pipeline_application(cores)
        _run_applications(cluster, [*applications.values()])
        yield systems


def _tuned(
    cluster: RayCluster, system: System, cores: int, encoded: Sequence[bytes], slo_s: float
) -> ocr_serve_pipeline.Setting:
    """The setting with which the pipeline reads most pictures per second."""
    rates = {}
    for setting in ocr_serve_pipeline.settings(cores):
        _run_applications(cluster, [ocr_serve_pipeline.networks_application(setting)])
        system.turn(encoded, max(system.in_flight), slo_s)  # the first answers of a process are slower
        rates[setting] = system.turn(encoded, max(system.in_flight), slo_s).rate
        print(f"{system.name:14} {setting}: {rates[setting]:.2f}/s", flush=True)
    return max(rates, key=lambda setting: rates[setting])


def _run_applications(cluster: RayCluster, applications: list[dict[str, Any]]) -> None:
    put(cluster, applications)
    await_until(partial(runs, cluster, applications), "the replicas of Ray Serve")


@contextmanager
def _partita(url: str | None, in_flight: tuple[int, ...]) -> Iterator[list[System]]:
    url = url or serve("ocr", "ocr")
    with httpx.Client(timeout=600, trust_env=False) as client, ThreadPoolExecutor(max(in_flight)) as threads:
        yield [System("partita", threads, lambda picture: served_text(client, url, picture).lines, in_flight)]


def _read_by_serve(client: httpx.Client, url: str, picture: bytes) -> Sequence[str]:
    return ocr_pipeline.lines_of(client.post(url, content=picture).raise_for_status().content)


def _best(system: System, turns: dict[tuple[str, int], list[Turn]], expected: Sequence[str]) -> Row:
    rows = []
    for in_flight in system.in_flight:
        measured = turns[system.name, in_flight]
        rows.append(
            Row(
                system=system.name,
                in_flight=in_flight,
                rate=statistics.median(turn.rate for turn in measured),
                p50_s=statistics.median(turn.p50_s for turn in measured),
                p99_s=statistics.median(turn.p99_s for turn in measured),
                different=sum(distance(a, b) for a, b in zip(measured[0].texts, expected, strict=True)),
            )
        )
    return max(rows, key=lambda row: row.rate)


if __name__ == "__main__":
    main()
