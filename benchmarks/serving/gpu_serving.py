"""What one GPU serves within the SLO: image classifiers through Partita and through plain `@serve.batch`.

ResNet-50, EfficientNet-B0 and ViT-B/16 are those of Hugging Face transformers, made from their configurations. Each is
profiled as Partita does it: the line alpha b + beta that fits its latencies best, and how far they are from it. The SLO
is five times the latency of a batch of one, and at least --least-slo. Then rates, ascending, on one system after the
other, for each has the GPU to itself, until hardly anything is answered in time: Partita on its frontend's own port and
behind Serve's proxy, `@serve.batch` behind that proxy with several waiting times, of which the best counts. Goodput is
the highest rate of which 99 % are answered within the SLO, as the client sees it. The client sends whole images, of 150
KB each, over HTTP from the same machine. At each rate it says, too, what executions took beside what the profile
predicts. The last line is a summary in JSON.

    python benchmarks/serving/gpu_serving.py [--backend CudaGraphs] [--seconds 10] [--only resnet]
    python benchmarks/serving/gpu_serving.py --device cpu --quick  # tiny models on one CPU thread, to see that it runs
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.profiled import POOL, ProfiledSession, Subject
from benchmarks.serving.serving_cases.raw_client import run_raw_load
from benchmarks.serving.serving_cases.served import await_until, base_url, measurements, put, python_path, runs
from benchmarks.serving.serving_cases.vision import SIZE, TINY_SIZE

from partita_api.inferencesession import ArrivalProcess
from partita_api.profile import Profile
from partita_api.session.execution import Backend
from partita_api.session.module import DType, ModelSource, TensorSpec
from partita_devtools.ray_cluster.cluster import RayCluster, ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_runtime.load.arrivals import RateSchedule, arrival_times
from partita_runtime.load.generator import LoadConfig
from partita_runtime.load.report import LoadReport
from partita_runtime.models.standard_inputs import standard_input
from partita_runtime.serving.protocol.inference_client import encode_request

MODELS = ("resnet", "efficientnet", "vit")
MODULE = "benchmarks.serving.serving_cases.vision"
ATTAINMENT, HOPELESS = 0.99, 0.5
"""What counts as carried, and what is not worth another rate."""
ALLOWANCE = 0.15
"""Share of the SLO that Partita leaves for the way between the client and its frontend."""


@dataclass(frozen=True)
class GpuSetting:
    """What is measured."""

    seconds: float
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    slo_factor: float = 5.0
    """The SLO, in latencies of a batch of one."""
    least_slo_ms: int = 20
    most: float = float("inf")
    """Requests a second that are never exceeded."""
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 0.9)
    """Rates that are tried, as shares of what the GPU could carry by its profile."""
    waits: tuple[float, ...] = (0.0, 0.2)
    """How long `@serve.batch` waits for a batch to fill, as shares of the SLO."""


def quick(seconds: float) -> GpuSetting:
    """For tiny models on a CPU, which take less time than HTTP does."""
    return GpuSetting(seconds, batch_sizes=(1, 2, 4), slo_factor=50.0, most=100.0, shares=(0.2, 0.4), waits=(0.0,))


@dataclass(frozen=True)
class System:
    """What serves the model."""

    name: str
    applications: list[dict[str, Any]]
    url: Callable[[RayCluster], str]
    """The address before `/v2/models`; raises httpx.HTTPError while it is not known."""
    signals: Callable[[RayCluster], str] | None = None
    """Where its frontend says what executions took."""


@dataclass(frozen=True)
class Fit:
    """The line that fits a model's latencies best."""

    alpha_micros: float
    beta_micros: float
    worst_error: float
    """Largest distance of a measured latency from the line, as a share of the latency."""


def main() -> None:
    """Measures all models."""
    options = _arguments().parse_args()
    on_gpu = options.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        raise SystemExit(
            "There is no CUDA device here. On a machine with a GPU this needs no option; to see that it runs "
            "elsewhere: python benchmarks/serving/gpu_serving.py --device cpu --quick"
        )
    setting = quick(options.seconds or 3.0) if options.quick else GpuSetting(options.seconds or 10.0)
    setting = replace(setting, least_slo_ms=options.least_slo)
    pixels = TINY_SIZE if options.quick else SIZE
    rows = []
    for name in options.only or MODELS:
        subject = Subject(
            name=name,
            model=ModelSource(entrypoint=f"{MODULE}:{name}", kwargs={"tiny": options.quick}),
            input=TensorSpec(shape=(3, pixels, pixels), dtype=DType.UINT8),
            batch_sizes=setting.batch_sizes,
            on_gpu=on_gpu,
            backend=Backend(options.backend),
        )
        rows.append(measured(subject, setting))
    device = torch.cuda.get_device_name() if on_gpu else "cpu, one thread"
    print(json.dumps({"device": device, "backend": options.backend, "quick": options.quick, "models": rows}))


def measured(subject: Subject, setting: GpuSetting) -> dict[str, Any]:
    """One model: its profile, then both systems."""
    profile = subject.profiled()
    line = fit(profile)
    slo_ms = max(setting.least_slo_ms, round(setting.slo_factor * latency_micros(profile)[0] / 1000))
    capacity = capacity_per_second(profile, slo_ms)
    print(
        f"{subject.name}: {line.alpha_micros:.0f} b + {line.beta_micros:.0f} us, off by up to {line.worst_error:.0%}, "
        f"SLO {slo_ms} ms, at most {capacity:.0f} requests/s by its profile",
        flush=True,
    )
    session = ProfiledSession(subject, profile, slo_ms, setting.seconds)
    rates = [round(share * min(capacity, setting.most), 1) for share in setting.shares]
    node = RayClassNode(POOL, slots=1, num_gpus=int(subject.on_gpu))
    config = RayClusterConfig(nodes=(node,), environment={"PYTHONPATH": python_path()})
    results: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as state, ray_cluster(Path(state), config, report=lambda _: None) as cluster:
        for system in systems(session, setting):
            results[system.name] = served(cluster, session, system, rates)
        put(cluster, [])
    goodputs = {system: goodput(found) for system, found in results.items()}
    print(f"{subject.name}: requests/s with {ATTAINMENT:.0%} in time: {goodputs}", flush=True)
    return {
        "model": subject.name,
        "alpha_micros": round(line.alpha_micros, 1),
        "beta_micros": round(line.beta_micros, 1),
        "worst_error_of_fit": round(line.worst_error, 4),
        "latency_micros": dict(zip(profile.batch_sizes, latency_micros(profile), strict=True)),
        "slo_ms": slo_ms,
        "capacity": round(capacity, 1),
        "goodput": goodputs,
        "rates": results,
        "warnings": profile.environment.get("warnings", "").splitlines(),
    }


def latency_micros(profile: Profile) -> list[float]:
    """Of the whole model, by the profile's batch sizes."""
    return [round(sum(column), 1) for column in zip(*profile.latency[0].median_micros, strict=True)]


def fit(profile: Profile) -> Fit:
    """By least squares of the relative errors."""
    sizes, latencies = np.array(profile.batch_sizes, float), np.array(latency_micros(profile))
    alpha, beta = np.polyfit(sizes, latencies, 1, w=1 / latencies)
    errors = np.abs(alpha * sizes + beta - latencies) / latencies
    return Fit(float(alpha), float(beta), float(errors.max()))


def capacity_per_second(profile: Profile, slo_ms: int) -> float:
    """Samples a second in the best batches of which two fit into the SLO: one is waited for while another runs."""
    latencies = zip(profile.batch_sizes, latency_micros(profile), strict=True)
    return max(size / latency * 1e6 for size, latency in latencies if size == 1 or 2 * latency <= slo_ms * 1000)


def systems(session: ProfiledSession, setting: GpuSetting) -> list[System]:
    """Those that are compared, in the order in which they run."""
    inner = replace(session, slo_ms=max(1, round((1 - ALLOWANCE) * session.slo_ms)))
    partita = inner.partita()

    def proxied(path: str) -> Callable[[RayCluster], str]:
        return lambda cluster: f"{base_url(cluster)}/{path}"

    frontend = proxied(session.session.key)

    def own_port(cluster: RayCluster) -> str:
        signals = measurements(frontend(cluster)).raise_for_status().json()
        return f"http://{signals['httpAddress']}"

    waits = [wait * session.slo_ms for wait in setting.waits]
    return [
        System("partita", partita, own_port, signals=frontend),
        System("partita, proxy", partita, frontend, signals=frontend),
        *(
            System(f"serve.batch {wait:.1f} ms", session.plain_serve(wait), proxied(f"plain/{session.subject.name}"))
            for wait in waits
        ),
    ]


def served(
    cluster: RayCluster, session: ProfiledSession, system: System, rates: Sequence[float]
) -> list[dict[str, Any]]:
    """What became of the requests at each rate."""
    put(cluster, system.applications)
    await_until(
        lambda: runs(cluster, system.applications) and answers(session, system.url, cluster),
        f"{system.name} answers",
        seconds=600,
    )
    url = system.url(cluster)
    rows: list[dict[str, Any]] = []
    for rate in rates:
        report = load(session, url, rate, session.window_seconds)
        row = {
            "rate": rate,
            "attainment": round(report.attainment, 4),
            "p50_ms": round(report.p50_ms or 0, 1),
            "p99_ms": round(report.p99_ms or 0, 1),
            "generator_lag_ms": round(report.lag_p99_ms, 1),
        }
        if system.signals is not None:
            row |= executions(system.signals(cluster))
        print(f"  {system.name:20}: " + ", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        rows.append(row)
        if report.attainment < HOPELESS:
            break
    return rows


def executions(url: str) -> dict[str, float]:
    """How long batches took beside what the profile says, by the frontend's signals; nothing if none were run."""
    (stage,) = measurements(url).raise_for_status().json()["stages"]
    predicted, actual = stage["predictedMicros"], stage["actualMicros"]
    return {"prediction_error": round(actual / predicted - 1, 4)} if predicted else {}


def answers(session: ProfiledSession, url: Callable[[RayCluster], str], cluster: RayCluster) -> bool:
    """Whether a single request is answered, however late."""
    try:
        return set(sent(session, url(cluster), np.zeros(1), 1.0).outcomes) == {"200"}
    except (httpx.HTTPError, OSError):
        return False


def load(session: ProfiledSession, url: str, rate: float, seconds: float) -> LoadReport:
    """Poisson arrivals at this rate."""
    times = arrival_times(ArrivalProcess.POISSON, RateSchedule.constant(rate), seconds, np.random.default_rng(1))
    return sent(session, url, times, seconds)


def sent(session: ProfiledSession, url: str, times: NDArray[np.float64], seconds: float) -> LoadReport:
    """What became of requests that were sent at these seconds."""
    sample = standard_input(session.subject.input, 1)
    config = LoadConfig(
        url=f"{url}/v2/models/{session.subject.name}/infer",
        payloads=[encode_request({"input": sample})],
        schedule=times,
        duration_s=seconds,
        slo_s=session.slo_ms / 1000,
        timeout_s=10,
    )
    return run_raw_load(config)


def goodput(rows: Sequence[dict[str, Any]]) -> float:
    """The highest rate that was carried; 0 if none was."""
    return max((row["rate"] for row in rows if row["attainment"] >= ATTAINMENT), default=0.0)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models, few rates: to see that it runs")
    parser.add_argument("--backend", choices=[*Backend], default=Backend.EAGER, help="how models run (default Eager)")
    parser.add_argument("--only", action="append", choices=MODELS, help="only this model (may be repeated)")
    parser.add_argument("--seconds", type=float, help="length of each measurement (default 10; 3 with --quick)")
    parser.add_argument(
        "--least-slo", type=int, default=1, help="milliseconds in which to answer, at least (default 1)"
    )
    return parser


if __name__ == "__main__":
    main()
