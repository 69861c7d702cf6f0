"""The CPU time of a request on the frontend's own HTTP port, without Ray: frontend and replicas are plain processes.

The client has 128 connections, and each sends its next request after the answer: a busy machine is slower but handles
as many requests together. `--before FOLDER` measures another checkout of Partita in turns with this one. The result is
the median of the turns, in microseconds of CPU per request, user and kernel.

The scheduling core is compiled, as in the images, unless it is `--interpreted`.

    python benchmarks/serving/request_path.py [--sizes 1,150,600] [--turns N] [--before FOLDER] [--interpreted]
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import uvloop

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.emulated import EmulatedSession
from benchmarks.serving.serving_cases.raw_client import run_raw_load
from benchmarks.serving.serving_cases.served import compiled_runtime

from partita_api.session.execution import BatchingPolicy
from partita_api.session.module import TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.load.generator import LoadConfig
from partita_runtime.load.report import LoadReport
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.deploy.stage_arguments import StageArguments
from partita_runtime.serving.ingress.http_server import HttpServer
from partita_runtime.serving.protocol.inference_client import encode_request
from partita_runtime.serving.replica.worker import StageWorker
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.transport.wire import PeerAddress

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = {1: 8000, 150: 2000, 600: 800}
"""Of one turn, by kilobytes of a request."""
CONNECTIONS = 128
PATIENCE_SECONDS = 60.0
GPUS = 4
PACKAGES = ("runtime", "operator", "planner", "crds")


@dataclass(frozen=True)
class System:
    """Running processes of one checkout."""

    name: str
    frontend: int
    replicas: tuple[int, ...]
    """Process ids."""
    port: int


def main() -> None:
    """Measures every size."""
    options = _arguments().parse_args()
    if options.role is not None:
        uvloop.run(_frontend() if options.role == "frontend" else _replica())
        return
    checkouts = {"this": ROOT} | ({} if options.before is None else {"before": options.before})
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: [str(checkout / package) for package in PACKAGES] for name, checkout in checkouts.items()}
        if not options.interpreted:
            for name, checkout in checkouts.items():
                paths[name].insert(0, str(compiled_runtime(checkout, Path(folder) / name)))
        rows = measure_all(options, paths)
    print(json.dumps({"core_compiled": not options.interpreted, "rows": rows}))


def measure_all(options: argparse.Namespace, paths: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """One row for each size and checkout, which has its packages in `paths`."""
    rows = []
    for kilobytes in options.sizes:
        session = _session(kilobytes)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in paths}
        with ExitStack() as stack:
            systems = [stack.enter_context(running(name, path, session)) for name, path in paths.items()]
            for system in systems:
                load(system, kilobytes)
            for _ in range(options.turns):
                for system in systems:
                    found[system.name].append(measured(system, kilobytes))
        for name, turns in found.items():
            frontend, replicas = (round(statistics.median(values), 1) for values in zip(*turns, strict=True))
            print(f"{kilobytes:4} KB {name:6}: frontend {frontend}, replicas {replicas} us", flush=True)
            rows.append({"kilobytes": kilobytes, "checkout": name, "frontend": frontend, "replicas": replicas})
    return rows


def measured(system: System, kilobytes: int) -> tuple[float, float]:
    """Microseconds of CPU per request: of the frontend, and of the replicas."""
    before = [cpu_seconds([system.frontend]), cpu_seconds(system.replicas)]
    report = load(system, kilobytes)
    after = [cpu_seconds([system.frontend]), cpu_seconds(system.replicas)]
    frontend, replicas = (1e6 * (b - a) / report.requests for a, b in zip(before, after, strict=True))
    print(f"{kilobytes:4} KB {system.name:6}: {frontend:.0f} + {replicas:.0f} us, {dict(report.outcomes)}", flush=True)
    return frontend, replicas


def load(system: System, kilobytes: int) -> LoadReport:
    """Send the requests of one turn. All are due at once; `run_raw_load` has 2 * rate * SLO connections."""
    sample = np.random.default_rng(0).random((1, *_input(kilobytes).shape), np.float32)
    requests = next((requests for most, requests in REQUESTS.items() if kilobytes <= most), min(REQUESTS.values()))
    return run_raw_load(
        LoadConfig(
            url=f"http://127.0.0.1:{system.port}/v2/models/bench/infer",
            payloads=[encode_request({"input": sample})],
            schedule=np.zeros(requests),
            duration_s=PATIENCE_SECONDS,
            slo_s=CONNECTIONS * PATIENCE_SECONDS / (2 * requests),
            timeout_s=PATIENCE_SECONDS,
        )
    )


def cpu_seconds(processes: Sequence[int]) -> float:
    """CPU time of all threads of these processes."""
    threads = [thread for pid in processes for thread in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@contextmanager
def running(name: str, path: Sequence[str], session: EmulatedSession) -> Iterator[System]:
    """The frontend and the replicas of one checkout."""
    stage, frontend = session.applications(ServingOptions())
    arguments = StageArguments.model_validate(stage["args"])
    with ExitStack() as stack:
        replicas = [
            stack.enter_context(_process("replica", path, arguments.model_dump_json(by_alias=True)))
            for _ in range(session.gpus)
        ]
        announcements = [
            Announcement(
                replica=f"replica-{number}",
                session_key=session.key,
                plan=arguments.plan,
                module=arguments.module,
                pipeline=arguments.pipeline,
                stage=arguments.stage,
                node="node",
                address=PeerAddress.model_validate_json(process.readline()),
                profile=arguments.profile,
            )
            for number, (_, process) in enumerate(replicas)
        ]
        text = json.dumps([announcement.model_dump(mode="json") for announcement in announcements])
        (deployment,) = frontend["deployments"]
        given = f"{json.dumps(deployment['user_config'])}\n{text}"
        pid, output = stack.enter_context(_process("frontend", path, given))
        yield System(name, pid, tuple(pid for pid, _ in replicas), int(output.readline()))


@contextmanager
def _process(role: str, path: Sequence[str], given: str) -> Iterator[tuple[int, IO[str]]]:
    """The id and the output of a process that imports from `path` and reads what is `given`."""
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, "--role", role],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(given)
    process.stdin.close()
    try:
        yield process.pid, process.stdout
    finally:
        process.kill()
        process.wait()


async def _replica() -> None:
    arguments = StageArguments.model_validate_json(sys.stdin.read())
    worker = StageWorker(build_executor(arguments.build), arguments.build.max_batch)
    print((await worker.start("127.0.0.1")).model_dump_json(), flush=True)
    await asyncio.Event().wait()


class _Announced:
    def __init__(self, announcements: Sequence[Announcement]) -> None:
        self._announcements = announcements

    async def replicas(self, session_key: str) -> Sequence[Announcement]:
        return self._announcements


async def _frontend() -> None:
    epoch, announced = sys.stdin.read().split("\n")
    announcements = [Announcement.model_validate(entry) for entry in json.loads(announced)]
    session = Session("default/bench", FrontendSettings(function_processes=0), _Announced(announcements))
    session.start()
    session.reconfigure(Epoch.model_validate_json(epoch))
    await session.first_plan(10)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    print(await HttpServer(session).listen("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


def _input(kilobytes: int) -> TensorSpec:
    return TensorSpec(shape=(256 * kilobytes,))


def _session(kilobytes: int) -> EmulatedSession:
    return EmulatedSession(
        name="bench",
        gpus=GPUS,
        alpha_micros=50,
        beta_micros=20_000,
        slo_ms=20_000,
        batch_size=64,
        input=_input(kilobytes),
        policy=BatchingPolicy.EAGER,
    )


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(int(size) for size in text.split(",")),
        default=(1, 150, 600),
        help="KB of a request, one after the other (default 1,150,600)",
    )
    parser.add_argument("--turns", type=int, default=5, help="of each checkout (default 5)")
    parser.add_argument("--interpreted", action="store_true", help="do not compile the scheduling core")
    parser.add_argument("--before", type=Path, help="another checkout to measure in turns with this one")
    parser.add_argument("--role", choices=("frontend", "replica"), help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
