"""PARIS compared with the exact packing and homogeneous layouts: throughput of 8 A100 under one model at a time.

As in PARIS' section V: queries of 1 to 32 samples, log-normal; an SLO of 1.5 times what 32 samples take on a whole GPU.
Models are synthetic and similar to the paper's: on g compute slices a batch b takes beta + alpha * b / g ** scaling,
and the part that is not beta is the slice's utilization. What counts is the most queries per second whose batches all
keep the SLO when every slice is busy; queueing is ignored. The last line is a summary in JSON.

    python benchmarks/planner/paris.py [--gpus 8]
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from math import exp, log

from partita_planner.mig.packing import BatchWorkload, NoPacking, Packing, most_served
from partita_planner.mig.paris_algorithm import SliceCurve, batch_workloads, paris, placed, segment_workloads
from partita_planner.mig.products import known_products
from partita_planner.solver.deadline import Deadline

PRODUCT = known_products().product("A100-40GB")
SLICES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
MOST_SAMPLES = 32
TIME_LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Model:
    """A model's latency curve."""

    name: str
    alpha_ms: float
    """One sample on one compute slice."""
    beta_ms: float
    scaling: float
    """How well it uses more compute slices: 1 is in proportion."""

    def latency_ms(self, name: str, batch: int) -> float:
        """Of a batch on a slice."""
        return self.beta_ms + self.alpha_ms * batch / PRODUCT.slice(name).compute ** self.scaling

    @property
    def slo_ms(self) -> float:
        """The paper's."""
        return 1.5 * self.latency_ms(SLICES[-1], MOST_SAMPLES)

    def curve(self, name: str) -> SliceCurve:
        """Utilization and throughput of the batch sizes that keep the SLO, so that PARIS' knee is one of them."""
        latency = {b: self.latency_ms(name, b) for b in range(1, MOST_SAMPLES + 1)}
        kept = {b: ms for b, ms in latency.items() if ms <= self.slo_ms}
        return SliceCurve(
            name, {b: 1 - self.beta_ms / ms for b, ms in kept.items()}, {b: 1000 / ms for b, ms in kept.items()}
        )


MODELS = (Model("light", 0.5, 1.0, 0.5), Model("medium", 2.0, 1.5, 0.6), Model("heavy", 8.0, 2.0, 0.95))


def log_normal(mean: float, sigma: float = 0.9) -> dict[int, float]:
    """Weights of batch sizes 1 to 32."""
    return {b: exp(-((log(b) - log(mean)) ** 2) / (2 * sigma**2)) / b for b in range(1, MOST_SAMPLES + 1)}


def compare(model: Model, distribution: dict[int, float], gpus: int) -> dict[str, float]:
    """Queries per second of every method; 0 where some batch keeps the SLO on no slice of the method's."""
    curves = [curve for name in SLICES if (curve := model.curve(name)).throughput]
    free = batch_workloads(model.name, curves, distribution, 1.0)
    results = {f"all {name}": most(restricted(free, name), gpus) for name in SLICES}
    answer = paris(PRODUCT, curves, distribution, gpus)
    found = placed(PRODUCT, answer, gpus, soon())
    results["PARIS, placed"] = answer.rate(found.slices) if isinstance(found, Packing) else 0.0
    results["PARIS' segments, exact"] = most(segment_workloads(answer, free), gpus)
    results["exact"] = most(free, gpus)
    return results


def restricted(workloads: tuple[BatchWorkload, ...], name: str) -> tuple[BatchWorkload, ...]:
    """The workloads on slices of one profile; empty if the profile cannot serve all of them."""
    if any(name not in workload.throughput for workload in workloads):
        return ()
    return tuple(BatchWorkload(w.model, w.rate, {name: w.throughput[name]}, w.batch) for w in workloads)


def most(workloads: tuple[BatchWorkload, ...], gpus: int) -> float:
    """Queries per second by the exact packing."""
    if not workloads:
        return 0.0
    found = most_served(PRODUCT, workloads, gpus, soon())
    return 0.0 if isinstance(found, NoPacking) else found.scale


def soon() -> Deadline:
    """The time limit of every solve."""
    return Deadline.after(TIME_LIMIT_SECONDS, time.perf_counter)


def main() -> None:
    """Compare on all models and two distributions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of the server")
    gpus = parser.parse_args().gpus
    cases = {f"{m.name}, mean {mean:g}": (m, log_normal(mean)) for m in MODELS for mean in (2.0, 8.0)}
    summary: dict[str, dict[str, float]] = {}
    for case, (model, distribution) in cases.items():
        print(f"{case} ...", file=sys.stderr)
        began = time.perf_counter()
        summary[case] = compare(model, distribution, gpus)
        summary[case]["seconds"] = time.perf_counter() - began
    methods = list(dict.fromkeys(method for row in summary.values() for method in row))
    print(f"{'queries/s':24}" + "".join(f"{case:>18}" for case in cases))
    for method in methods:
        print(f"{method:24}" + "".join(f"{row.get(method, 0.0):18.1f}" for row in summary.values()))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
