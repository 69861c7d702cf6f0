"""What Partita's data plane costs a request, and how many it carries, beside a plain Ray Serve deployment.

Both run on the same local Ray cluster, on the same emulated GPUs (by default four of 1.053 b + 5.072 ms, as ResNet50 on
a 1080Ti in Symphony's appendix C), behind the same HTTP proxy, and answer the same Open Inference Protocol requests:
Partita with one frontend and a stage replica for each GPU, Ray Serve with `@serve.batch` and a replica for each GPU.

First the overhead at low load: latency as the client sees it, less the model's time. Then rates, one after the
other, each on both systems in turn, until hardly anything is answered within the SLO any more. The load comes from
this process, on the same machine: where it falls behind its own schedule, which says more of the machine than of the
systems, it measures again, up to three times, and keeps the best. The last line is a summary in JSON.

    python benchmarks/serving_overhead.py [--seconds 8] [--payload-bytes 1024] [--rates 100,200,400]
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serving_cases.emulated import MODULE, OUTPUT, POOL, EmulatedSession
from benchmarks.serving_cases.served import READY_SECONDS, base_url, put, python_path, runs

from partita_api.inferencesession import BatchingPolicy
from partita_api.module import TensorSpec
from partita_operator.dev.ray_cluster import RayCluster, ray_cluster
from partita_operator.dev.ray_commands import RayClassNode, RayClusterConfig
from partita_runtime.execution.emulated import EmulatedExecutor
from partita_runtime.execution.stage_build import EmulatedStage
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig, run_load
from partita_runtime.load.inference_request import encode_request
from partita_runtime.load.report import LoadReport
from partita_runtime.serving.applications import ServingOptions
from partita_runtime.serving.interface import Interface
from partita_runtime.serving.oip import HEADER_LENGTH, decode_request, encode_answer

ATTAINMENT = 0.99
HOPELESS = 0.8
"""A system that answers less than this in time is not asked for more."""
MOST_ATTEMPTS = 3
DEFAULT_RATES = (100, 200, 300, 400, 600, 800, 1000, 1200, 1500, 1800, 2200, 2600, 3000)


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    gpus: int
    alpha_micros: int
    beta_micros: int
    slo_ms: int
    allowance_ms: int
    """What Partita leaves of the SLO for the way between the client and its frontend."""
    batch_size: int
    batch_wait_s: float
    """How long `@serve.batch` waits for a batch to fill."""
    payload_bytes: int
    seconds: float

    @property
    def input(self) -> TensorSpec:
        """One sample."""
        return TensorSpec(shape=(max(1, self.payload_bytes // 4),))

    @property
    def stage(self) -> EmulatedStage:
        """The model on one GPU."""
        latency = tuple(self.alpha_micros * b + self.beta_micros for b in range(1, self.batch_size + 1))
        return EmulatedStage(latency_micros=latency, inputs=(self.input,), outputs=(OUTPUT,))

    @property
    def interface(self) -> Interface:
        """What both systems take and give."""
        return Interface("bench", self.session(BatchingPolicy.EAGER).session.spec, {MODULE: self.stage.outputs})

    def session(self, policy: BatchingPolicy) -> EmulatedSession:
        """The session of one model, a replica on each GPU."""
        return EmulatedSession(
            name="bench",
            gpus=self.gpus,
            alpha_micros=self.alpha_micros,
            beta_micros=self.beta_micros,
            slo_ms=self.slo_ms - self.allowance_ms,
            batch_size=self.batch_size,
            input=self.input,
            policy=policy,
        )

    def partita(self, policy: BatchingPolicy) -> list[dict[str, Any]]:
        """Partita's Serve applications."""
        return self.session(policy).applications(ServingOptions(stage_cpus=0.1, frontend_cpus=0.1))

    def plain_serve(self) -> list[dict[str, Any]]:
        """The Ray Serve application that it is compared with."""
        return [
            {
                "name": "plain",
                "route_prefix": "/plain",
                "import_path": "serving_overhead:plain_application",
                "args": {"setting": json.dumps(asdict(self))},
                "deployments": [
                    {
                        "name": "PlainServe",
                        "num_replicas": self.gpus,
                        "max_ongoing_requests": 4 * self.batch_size,
                        "ray_actor_options": {"num_cpus": 0.1, "resources": {f"partita-pool-{POOL}": 1}},
                    }
                ],
            }
        ]


class PlainServe:
    """One emulated GPU behind `@serve.batch`, answering the same requests as Partita."""

    def __init__(self, setting: Setting) -> None:
        self._interface = setting.interface
        self._executor = EmulatedExecutor(setting.stage)
        self._gpu = threading.Lock()
        self._run.set_max_batch_size(setting.batch_size)
        self._run.set_batch_wait_timeout_s(setting.batch_wait_s)

    def __serve_build_asgi_app__(self) -> Starlette:
        """Called by Serve once the replica is constructed."""
        return Starlette(routes=[Route("/v2/models/bench/infer", self.infer, methods=["POST"])])

    async def infer(self, request: Request) -> Response:
        """One request of one sample."""
        wanted = decode_request(await request.body(), request.headers.get(HEADER_LENGTH), self._interface)
        row = await self._run(wanted.inputs["input"][0])
        headers, content = encode_answer(wanted, self._interface, {MODULE: row[None]})
        return Response(content, headers=headers)

    @serve.batch(max_batch_size=1)
    async def _run(self, samples: list[np.ndarray]) -> Sequence[np.ndarray]:
        (outputs,) = await asyncio.to_thread(self._run_on_gpu, np.stack(samples))
        return list(outputs)

    def _run_on_gpu(self, batch: np.ndarray) -> list[np.ndarray]:
        with self._gpu:
            return self._executor.run([batch])


def plain_application(args: dict[str, str]) -> serve.Application:
    """Built by Serve from the configuration's `args`."""
    deployment = serve.deployment(serve.ingress()(PlainServe), name="PlainServe")
    return deployment.bind(Setting(**json.loads(args["setting"])))


def main() -> None:
    """Deploys both systems and measures them."""
    options = _arguments().parse_args()
    setting = Setting(
        gpus=options.gpus,
        alpha_micros=options.alpha,
        beta_micros=options.beta,
        slo_ms=options.slo,
        allowance_ms=options.allowance,
        batch_size=options.batch_size,
        batch_wait_s=0.02,
        payload_bytes=options.payload_bytes,
        seconds=options.seconds,
    )
    path = os.pathsep.join([str(Path(__file__).parent), python_path()])
    config = RayClusterConfig(
        nodes=(RayClassNode(POOL, slots=2 * setting.gpus),),
        fast_proxy=not options.python_proxy,
        environment={"PYTHONPATH": path},
    )
    with tempfile.TemporaryDirectory() as state, ray_cluster(Path(state), config) as cluster:
        summary = measure(cluster, setting, options.rates)
    print(json.dumps(summary))


def measure(cluster: RayCluster, setting: Setting, rates: Sequence[float]) -> dict[str, Any]:
    """Both systems' overhead at low load, and the highest rate that each carries."""
    urls = {"ray serve": f"{base_url(cluster)}/plain", "partita": f"{base_url(cluster)}/default/bench"}
    _deploy(cluster, [*setting.plain_serve(), *setting.partita(BatchingPolicy.EAGER)], urls.values(), setting)
    overheads = {name: overhead(setting, name, url) for name, url in urls.items()}
    _deploy(cluster, [*setting.plain_serve(), *setting.partita(BatchingPolicy.DEFERRED)], urls.values(), setting)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in urls}
    for rate in rates:
        for name, url in urls.items():
            if not rows[name] or rows[name][-1]["attainment"] >= HOPELESS:
                rows[name].append(attainment(setting, name, url, rate))
    carried = {name: _highest(measured) for name, measured in rows.items()}
    print(
        f"requests/s with {ATTAINMENT:.0%} in time: " + ", ".join(f"{name} {rate:g}" for name, rate in carried.items())
    )
    return {"setting": asdict(setting), "highest_rate": carried, "overhead_ms": overheads, "rates": rows}


def overhead(setting: Setting, name: str, url: str) -> dict[str, float]:
    """Percentiles of the latency less the model's time for one sample, in milliseconds, at a few requests a second."""
    report = load(setting, url, rate=20)
    model_ms = setting.stage.latency_micros[0] / 1000
    found = {f"p{p}": round(report.latency_percentiles_ms[p] - model_ms, 2) for p in (50, 90, 99)}
    print(f"{name}: overhead at 20 requests/s: " + ", ".join(f"{p} {ms} ms" for p, ms in found.items()), flush=True)
    return found


def attainment(setting: Setting, name: str, url: str, rate: float) -> dict[str, Any]:
    """What became of the requests at this rate."""
    report = load(setting, url, rate)
    for _ in range(MOST_ATTEMPTS - 1):
        if not report.warnings:
            break
        report = min(report, load(setting, url, rate), key=lambda measured: measured.lag_p99_ms)
    row = {
        "rate": rate,
        "attainment": round(report.attainment, 4),
        "p50_ms": round(report.p50_ms or 0, 1),
        "p99_ms": round(report.p99_ms or 0, 1),
        "generator_lag_ms": round(report.lag_p99_ms, 1),
    }
    doubt = " (the load generator was late)" if report.warnings else ""
    print(f"{name:9}: " + ", ".join(f"{key} {value:g}" for key, value in row.items()) + doubt, flush=True)
    return row


def load(setting: Setting, url: str, rate: float) -> LoadReport:
    """Poisson arrivals at this rate."""
    sample = np.random.default_rng(0).random((1, *setting.input.shape), np.float32)
    config = LoadConfig(
        url=f"{url}/v2/models/bench/infer",
        payloads=[encode_request({"input": sample})],
        schedule=arrival_times(
            setting.interface.session.rate.arrival,
            RateSchedule.constant(rate),
            setting.seconds,
            np.random.default_rng(1),
        ),
        duration_s=setting.seconds,
        slo_s=setting.slo_ms / 1000,
        timeout_s=10,
    )
    return asyncio.run(run_load(config)).report


def _deploy(cluster: RayCluster, applications: list[dict[str, Any]], urls: Iterable[str], setting: Setting) -> None:
    """Bring up these applications, or change them, wait until they answer, and warm them up."""
    put(cluster, applications)
    deadline = time.monotonic() + READY_SECONDS
    for url in urls:
        while not runs(cluster, applications) or load(setting, url, rate=20).attainment < ATTAINMENT:
            if time.monotonic() > deadline:
                raise SystemExit(f"{url} did not answer in time within {READY_SECONDS:.0f} s")
            time.sleep(0.5)


def _highest(rows: Sequence[dict[str, float]]) -> float:
    return max((row["rate"] for row in rows if row["attainment"] >= ATTAINMENT), default=0.0)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each measurement (default 8)")
    parser.add_argument("--gpus", type=int, default=4, help="emulated GPUs (default 4)")
    parser.add_argument("--alpha", type=int, default=1053, help="microseconds for each sample (default 1053)")
    parser.add_argument("--beta", type=int, default=5072, help="microseconds for each batch (default 5072)")
    parser.add_argument("--slo", type=int, default=100, help="milliseconds in which to answer (default 100)")
    parser.add_argument(
        "--allowance", type=int, default=15, help="milliseconds of the SLO left for the client's side (default 15)"
    )
    parser.add_argument("--batch-size", type=int, default=45, help="largest batch of both systems (default 45)")
    parser.add_argument("--payload-bytes", type=int, default=1024, help="size of one sample (default 1024)")
    parser.add_argument("--python-proxy", action="store_true", help="Serve's own proxy instead of HAProxy")
    parser.add_argument(
        "--rates",
        type=lambda text: tuple(float(rate) for rate in text.split(",")),
        default=DEFAULT_RATES,
        help="requests per second to try, ascending",
    )
    return parser


if __name__ == "__main__":
    main()
