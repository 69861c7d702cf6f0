"""How many requests Partita serves in time, and what it adds to a request, beside plain Ray Serve.

All run on a local Ray cluster, on the same emulated GPUs, and answer requests of 1, 150 and 600 KB:

- `plain`: Ray Serve with its default proxy and without flags: a replica for each GPU with
  `@serve.batch`, which takes a sample's bytes and answers with bytes;
- `tuned`: the same behind HAProxy, with Serve's throughput flags, without an access log, as an ASGI application, and
  with the Open Inference Protocol by Partita's own way to read and write it;
- `proxy`: Partita with one frontend and a replica for each GPU, behind the same HAProxy, with the same flags;
- `port`: the same on the frontend's own HTTP port;
- `proxy2`, only on request: as `proxy`, with two frontends and a coordinator;
- `called`, only on request: as `proxy`, with batches by Ray actor calls;
- `tls`, only on request: as `port`, with mutual TLS between frontend and replicas.

`plain` and `tuned` use the batch size and wait that serve most. `plain` has a separate cluster, since Serve's flags are
set in the environment. Partita and `tuned` answer the same requests.

There are four GPUs and an SLO of 100 ms. By default the GPUs are so fast (0.05 b + 2 ms) that they do not limit any
system: the comparison is about the path to a GPU and back. `--gpu-model resnet50-1080ti` has those of Symphony's
appendix C (1.053 b + 5.072 ms, 3533 requests/s at most).

The result is the highest rate of Poisson arrivals with 99 % answered within the SLO: it is doubled until it fails, then
bisected. The client is on the same machine. A rate is served if one of two tries succeeds. A try in which the client
itself was late does not count, up to three times. The settings of `@serve.batch` are searched in the same way.

First it measures the latency at 20 requests/s less the model's time for one sample: Partita (`proxy`, `port`) with the
Eager policy, which does not wait for a batch to fill, `@serve.batch` with no wait. Each rate has the CPU time of a
request by process, which is more meaningful than the rate if the machine has other work.

It takes about half an hour, `--quick` a third of that. The last line is a summary in JSON, with the rates relative to
`plain` and `tuned`, and whether the scheduling core is compiled: as in the images, unless it is `--interpreted`.

    python benchmarks/serving/serving.py [--quick | --thorough] [--only SYSTEM]... [--sizes 1,150,600]
                                         [--gpu-model MODEL] [--interpreted]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.certificate import certificate_files
from benchmarks.serving.serving_cases.cpu_time import cpu_times, marked_environment, micros_by_role
from benchmarks.serving.serving_cases.emulated import POOL
from benchmarks.serving.serving_cases.plain_serve import BatchSetting, ServeSetting, plain_serve, tuned_serve
from benchmarks.serving.serving_cases.raw_client import run_raw_load
from benchmarks.serving.serving_cases.served import (
    READY_SECONDS,
    await_until,
    base_url,
    compiled_runtime,
    measurements,
    put,
    python_path,
    runs,
)

from partita_api.session.execution import BatchingPolicy
from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig
from partita_runtime.load.report import LoadReport
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.protocol.inference_client import Payload, encode_request
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.tls_files import TlsFiles

ROOT = Path(__file__).resolve().parents[2]
ATTAINMENT = 0.99
LOW_RATE = 20.0
FIRST_RATES = {100: 400.0, 300: 200.0}
"""First rates of the search, by the largest size of a request in kilobytes."""
LEAST_FIRST_RATE = 50.0
LEAST_RATE = 5.0
SERVE = ("plain", "tuned")
PARTITA = ("proxy", "port")
BY_DEFAULT = (*SERVE, *PARTITA)
SYSTEMS = (*BY_DEFAULT, "proxy2", "called", "tls")
GPU_MODELS = {"fast": (50, 2000), "resnet50-1080ti": (1053, 5072)}
"""Microseconds for each sample, and for each batch."""
_TRIES = 2
_MOST_LATE_TRIES = 3


@dataclass(frozen=True)
class SearchEffort:
    """How exactly rates are measured."""

    seconds: float
    """Length of each measurement."""
    step: float
    """Factor between two rates that are still distinguished."""
    batch_sizes: tuple[int, ...]
    waits_ms: tuple[float, ...]


USUAL = SearchEffort(seconds=4.0, step=1.1, batch_sizes=(16, 45), waits_ms=(5.0, 20.0))
THOROUGH = SearchEffort(seconds=8.0, step=1.05, batch_sizes=(8, 16, 32, 45), waits_ms=(0.0, 5.0, 20.0, 40.0))
QUICK = SearchEffort(seconds=2.0, step=1.25, batch_sizes=(45,), waits_ms=(5.0, 20.0))


def main() -> None:
    """Deploys the systems one after the other and measures them."""
    options = _arguments().parse_args()
    alpha, beta = GPU_MODELS[options.gpu_model]
    print(f"{options.gpus} GPUs of {alpha / 1000} b + {beta / 1000} ms, SLO {options.slo} ms", flush=True)
    wanted = [system for system in SYSTEMS if system in (options.only or BY_DEFAULT)]
    with tempfile.TemporaryDirectory() as folder:
        compiled = [] if options.interpreted else [str(compiled_runtime(ROOT, Path(folder)))]
        rows = measure_all(options, wanted, os.pathsep.join([*compiled, python_path()]))
    described = {"effort": asdict(_effort(options)), "gpus": options.gpus, "gpu_model": options.gpu_model}
    machine = {"slo_ms": options.slo, "cpus": os.cpu_count(), "core_compiled": not options.interpreted}
    print(json.dumps({**described, **machine, "rows": rows, "factors": factors(rows)}))


def measure_all(options: argparse.Namespace, wanted: Sequence[str], python_path: str) -> list[dict[str, Any]]:
    """One row for each system and size. Processes import from `python_path`."""
    alpha, beta = GPU_MODELS[options.gpu_model]
    rows = []
    for systems, flags in (([s for s in wanted if s == "plain"], False), ([s for s in wanted if s != "plain"], True)):
        if not systems:
            continue
        config = RayClusterConfig(
            nodes=(RayClassNode(POOL, slots=options.gpus),),
            fast_proxy=flags,
            environment={"PYTHONPATH": python_path, **marked_environment()},
        )
        with tempfile.TemporaryDirectory() as state, ray_cluster(Path(state), config) as cluster:
            tls = certificate_files(Path(state) / "certificate")
            for kilobytes in options.sizes:
                setting = ServeSetting(
                    gpus=options.gpus,
                    alpha_micros=alpha,
                    beta_micros=beta,
                    slo_ms=options.slo,
                    allowance_ms=options.allowance,
                    batch_size=options.batch_size,
                    payload_bytes=1024 * kilobytes,
                )
                rows += measure(Bench(cluster, setting, _effort(options), tls), systems)
    return rows


def measure(bench: "Bench", systems: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each system, of requests of one size."""
    rows = []
    for name in SERVE:
        if name in systems:
            bench.deploy_serve(name, BatchSetting(1, 0.0))
            added = bench.added_ms(name)
            rate, batches = bench.best_batches(name)
            rows.append(bench.row(name, rate, added) | {"batches": asdict(batches)})
    for names in (PARTITA, ("called",), ("tls",)):
        wanted = [name for name in names if name in systems]
        if not wanted:
            continue
        bench.deploy_partita(BatchingPolicy.EAGER, wanted[0])
        overheads = {name: bench.added_ms(name) for name in wanted}
        bench.deploy_partita(BatchingPolicy.DEFERRED, wanted[0])
        rows += [bench.row(name, bench.highest_rate(name), overheads[name]) for name in wanted]
    if "proxy2" in systems:
        bench.deploy_partita(BatchingPolicy.DEFERRED, "proxy2", frontends=2)
        rows.append(bench.row("proxy2", bench.highest_rate("proxy2"), {}))
    return rows


def factors(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """By size and way in: how many times what each kind of Ray Serve carries."""
    carried = {(row["kilobytes"], row["system"]): row["rate"] for row in rows}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (kilobytes, system), rate in carried.items():
        others = {name: carried.get((kilobytes, name)) for name in SERVE if name != system and system != "plain"}
        if any(others.values()):
            times = {name: round(rate / other, 2) for name, other in others.items() if other}
            found.setdefault(f"{kilobytes} KB", {})[system] = times
    return found


class Bench:
    """A cluster, and the requests of one size."""

    def __init__(self, cluster: RayCluster, setting: ServeSetting, effort: SearchEffort, tls: TlsFiles) -> None:
        """`tls` is the certificate of system `tls`."""
        self._cluster = cluster
        self._tls = tls
        self._setting = setting
        self._effort = effort
        sample = np.random.default_rng(0).random((1, *setting.input.shape), np.float32)
        self._payload = encode_request({"input": sample})
        self._bytes = Payload({"Content-Type": "application/octet-stream"}, sample.tobytes())
        self._cpu_micros: dict[str, float] = {}
        """Of a request of the last load, by what used it."""
        self._carried_micros: dict[str, float] = {}
        """The same of the last load that was carried."""

    def deploy_serve(self, system: str, batches: BatchSetting) -> None:
        """Make this kind of Ray Serve what runs, set like this."""
        application = plain_serve if system == "plain" else tuned_serve
        self._deploy([application(self._setting, batches)], system)

    def deploy_partita(self, policy: BatchingPolicy, system: str, frontends: int = 1) -> None:
        """Make Partita what runs, under this policy, connected as the system says."""
        options = ServingOptions(
            stage_cpus=0.1,
            frontend_cpus=0.1,
            transport=TransportKind.ACTOR_CALLS if system == "called" else TransportKind.STREAMS,
            tls=self._tls if system == "tls" else None,
        )
        self._deploy(self._setting.session(policy, frontends).applications(options), "proxy")

    def best_batches(self, system: str) -> tuple[float, BatchSetting]:
        """The highest rate that this kind of Ray Serve carries, and how `@serve.batch` is then set."""
        best, found = 0.0, BatchSetting(self._effort.batch_sizes[-1], self._effort.waits_ms[-1])
        for size, wait in product(reversed(self._effort.batch_sizes), reversed(self._effort.waits_ms)):
            batches = BatchSetting(size, wait)
            self.deploy_serve(system, batches)
            print(f"{self._name} {system}: batches of {size}, wait of {wait:g} ms", flush=True)
            rate = self.highest_rate(system, above=best)
            if rate > best:
                best, found = rate, batches
        return best, found

    def highest_rate(self, system: str, above: float = 0.0) -> float:
        """The highest rate that is carried; 0 if it is not more than `above`."""
        step = self._effort.step
        carried, rate = 0.0, above * step or self._first_rate
        while self.carries(system, rate):
            carried, rate = rate, 2 * rate
        while not (carried or above) and rate > LEAST_RATE:
            rate /= 2
            if self.carries(system, rate):
                carried, rate = rate, 2 * rate
        while carried and rate / carried > step:
            middle = (carried * rate) ** 0.5
            if self.carries(system, middle):
                carried = middle
            else:
                rate = middle
        return carried

    @property
    def _first_rate(self) -> float:
        kilobytes = self._setting.payload_bytes // 1024
        return next((rate for most, rate in FIRST_RATES.items() if kilobytes <= most), LEAST_FIRST_RATE)

    def carries(self, system: str, rate: float) -> bool:
        """Whether 99 % of the requests are answered in time."""
        for _ in range(_TRIES):
            report = self._load(system, rate, self._effort.seconds)
            for _ in range(_MOST_LATE_TRIES - 1):
                if report.attainment >= ATTAINMENT or not report.warnings:
                    break
                report = self._load(system, rate, self._effort.seconds)
            doubt = ", client late" if report.warnings else ""
            print(
                f"{self._name} {system} {rate:6.0f}/s: {report.attainment:.2%} in time, "
                f"p50 {report.p50_ms or 0:.1f} ms, p99 {report.p99_ms or 0:.1f} ms, {dict(report.outcomes)}{doubt}; "
                f"us of CPU: {self._cpu_micros}",
                flush=True,
            )
            if report.attainment >= ATTAINMENT:
                self._carried_micros = self._cpu_micros
                return True
        return False

    def added_ms(self, system: str) -> dict[str, float]:
        """Percentiles of the latency at a low rate, less the model's time for one sample."""
        report = self._load(system, LOW_RATE, 2 * self._effort.seconds)
        model_ms = self._setting.stage.latency_micros[0] / 1000
        found = {f"p{p}": round(report.latency_percentiles_ms[p] - model_ms, 2) for p in (50, 99)}
        print(f"{self._name} {system}: added at {LOW_RATE:g} requests/s: {found}", flush=True)
        return found

    def row(self, system: str, rate: float, added_ms: dict[str, float]) -> dict[str, Any]:
        """What was measured of a system."""
        print(f"{self._name} {system}: {rate:.0f} requests/s, {added_ms} ms added at low load", flush=True)
        found = {"kilobytes": self._setting.payload_bytes // 1024, "system": system, "rate": round(rate, 1)}
        return found | {"added_ms": added_ms, "cpu_micros": self._carried_micros}

    @property
    def _name(self) -> str:
        return f"{self._setting.payload_bytes // 1024:4} KB"

    def _url(self, system: str) -> str:
        """Where a system answers such requests."""
        behind_proxy = base_url(self._cluster)
        match system:
            case "plain":
                return f"{behind_proxy}/plain"
            case "tuned":
                base = f"{behind_proxy}/tuned"
            case "port" | "tls":
                signals = measurements(f"{behind_proxy}/default/bench").json()
                base = f"http://{signals['httpAddress']}"
            case _:
                base = f"{behind_proxy}/default/bench"
        return f"{base}/v2/models/bench/infer"

    def _load(self, system: str, rate: float, seconds: float) -> LoadReport:
        schedule = arrival_times(
            self._setting.interface.session.rate.arrival,
            RateSchedule.constant(rate),
            seconds,
            np.random.default_rng(1),
        )
        before = cpu_times()
        report = run_raw_load(
            LoadConfig(
                url=self._url(system),
                payloads=[self._bytes if system == "plain" else self._payload],
                schedule=schedule,
                duration_s=seconds,
                slo_s=self._setting.slo_ms / 1000,
                timeout_s=10,
            )
        )
        self._cpu_micros = micros_by_role(before, cpu_times(), report.requests)
        return report

    def _deploy(self, applications: list[dict[str, Any]], system: str) -> None:
        """Bring these up, and no others, wait until they answer in time, and so warm them up."""
        put(self._cluster, applications)
        await_until(lambda: runs(self._cluster, applications), f"{system} is up")
        deadline = time.monotonic() + READY_SECONDS
        while self._load(system, LOW_RATE, 2.0).attainment < ATTAINMENT:
            if time.monotonic() > deadline:
                raise SystemExit(f"{system} did not answer in time within {READY_SECONDS:.0f} s")


def _effort(options: argparse.Namespace) -> SearchEffort:
    return QUICK if options.quick else THOROUGH if options.thorough else USUAL


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="shorter, coarser, fewer settings of @serve.batch")
    effort.add_argument("--thorough", action="store_true", help="longer, closer, more settings of @serve.batch: hours")
    parser.add_argument("--interpreted", action="store_true", help="do not compile the scheduling core")
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="only this system (may be repeated)")
    parser.add_argument(
        "--sizes",
        type=lambda text: tuple(int(size) for size in text.split(",")),
        default=(1, 150, 600),
        help="KB of a request, one after the other (default 1,150,600)",
    )
    parser.add_argument("--gpus", type=int, default=4, help="emulated GPUs (default 4)")
    parser.add_argument("--gpu-model", choices=GPU_MODELS, default="fast", help="what is emulated (default fast)")
    parser.add_argument("--slo", type=int, default=100, help="milliseconds in which to answer (default 100)")
    parser.add_argument(
        "--allowance", type=int, default=15, help="milliseconds of the SLO left for the client's side (default 15)"
    )
    parser.add_argument("--batch-size", type=int, default=64, help="largest batch of a GPU (default 64)")
    return parser


if __name__ == "__main__":
    main()
