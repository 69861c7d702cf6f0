"""What size classes gain over padding each sample to the largest size, for samples of several distributions of length.

    python benchmarks/scheduling/size_classes.py [--quick] [--seed 1]

The model is an encoder of up to 512 tokens. A batch of b samples, padded to s tokens, takes 5.3 b s + 2762 us: ViT-B/16
with CUDA graphs on one H200 (docs/benchmarks/gpu.md, 1044 b + 2762 us at 197 tokens), taken as proportional to the
tokens. Attention makes long samples more expensive than that, so padding costs even more.

Goodput: the highest rate at which 99 % of all requests are in time, simulated on GPUs that all have the model in each
size. Cost: the GPUs of the planner's plan for a rate. The last line of the output is a summary in JSON.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.scheduling.goodput_cases.measure import TARGET, Deployment, Effort, Model, say, shared

from partita_api.fields.quantity import Percent
from partita_api.inferencesession import InferenceSessionSpec, PlannerSettings, Rate, Slo
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import SessionRef
from partita_api.profile import Profile
from partita_api.session.module import DType, ModelSource, Module, TensorSpec
from partita_api.session.sizes import Size
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, PlanningProblem, Pool
from partita_runtime.simulation.load_search import goodput

MICROS_PER_TOKEN, BETA_MICROS = 1044 / 197, 2762
LONGEST = 512
SLO_MS = 100
GPUS = 4
RATE = 1000
"""Requests per second of the plans."""
CLASSES: Mapping[str, tuple[int, ...]] = {
    "all to 512": (512,),
    "2 classes": (128, 512),
    "4 classes": (64, 128, 256, 512),
    "8 classes": (32, 64, 96, 128, 192, 256, 384, 512),
}


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths, in tokens."""

    name: str
    drawn: np.ndarray

    @classmethod
    def lognormal(cls, name: str, median: float, sigma: float) -> "Lengths":
        """Lengths whose logarithms are normally distributed; none is longer than the model takes."""
        drawn = np.random.default_rng(0).lognormal(np.log(median), sigma, 100_000)
        return cls(f"{name}: lognormal, median {median:g}, sigma {sigma:g}", np.clip(np.ceil(drawn), 1, LONGEST))

    def shares(self, sizes: Sequence[int]) -> list[float]:
        """The share of the samples in each size class."""
        counts = np.bincount(np.searchsorted(sizes, self.drawn), minlength=len(sizes))
        return [float(count) / len(self.drawn) for count in counts]


LENGTHS = (
    Lengths.lognormal("sentences", 25, 0.6),
    Lengths.lognormal("paragraphs", 120, 0.7),
    Lengths("any: uniform, 1 to 512", np.arange(1, LONGEST + 1)),
)


def micros(size: int, batch: int) -> float:
    """The time of a batch of samples of this size."""
    return MICROS_PER_TOKEN * size * batch + BETA_MICROS


def deployed(sizes: Sequence[int]) -> Deployment:
    """Each size on each GPU."""
    models = [Model(str(size), MICROS_PER_TOKEN * size / 1000, BETA_MICROS / 1000, SLO_MS) for size in sizes]
    return shared(models, GPUS, "Deferred")


def goodput_of(lengths: Lengths, sizes: Sequence[int], effort: Effort) -> float:
    """The highest rate with 99 % of all requests in time, for every seed."""
    deployment, shares = deployed(sizes), lengths.shares(sizes)

    def attainment(rate: float) -> float:
        least = 1.0
        for seed in effort.seeds:
            rates = {str(size): rate * share for size, share in zip(sizes, shares, strict=True) if share}
            reports = deployment.run(rates, effort.seconds, seed).values()
            least = min(least, sum(r.in_time for r in reports) / max(1, sum(r.offered for r in reports)))
            if least < TARGET:
                break
        return least

    tokens = sum(size * share for size, share in zip(sizes, shares, strict=True))
    return goodput(attainment, GPUS * 1e6 / (MICROS_PER_TOKEN * tokens), TARGET, effort.precision)


def session(lengths: Lengths, sizes: Sequence[int]) -> InferenceSessionSpec:
    """The session with these size classes, or of one size."""
    hundredths = [round(10_000 * share) for share in lengths.shares(sizes)]
    hundredths[-1] += 10_000 - sum(hundredths)
    classes = [
        Size(size=size, share=Percent(f"{share / 100:.2f}%")) for size, share in zip(sizes, hundredths, strict=True)
    ]
    used = [each for each in classes if each.share != "0.00%"]
    varies = len(used) > 1
    encoder = Module(
        name="encoder",
        model=ModelSource(file="encoder.onnx"),
        input=TensorSpec(shape=(used[-1].size,), dtype=DType.INT64, variable_dimension=0 if varies else None),
        sizes=tuple(used) if varies else None,
    )
    return InferenceSessionSpec(
        slo=Slo(latency_ms=SLO_MS),
        rate=Rate(requests_per_second=RATE),
        modules=(encoder,),
        planner=PlannerSettings(max_stages=1, max_batch_size=64),
    )


def gpus_of(lengths: Lengths, sizes: Sequence[int]) -> int:
    """The GPUs of the plan for RATE requests per second."""
    spec = session(lengths, sizes)
    profiles = {}
    for module in with_size_classes(spec).modules:
        assert module.model is not None
        assert module.input is not None
        times = {batch: micros(module.input.shape[0], batch) / 1000 for batch in (1, 2, 4, 8, 16, 32, 64)}
        profiles[module.name, "h200"] = Profile.of_whole_model(module.model, module.input, "h200", times)
    pools = (Pool.priced("h200", 64, 1.0),)
    outcome = plan(PlanningProblem(SessionRef(name="encoder"), spec, float(RATE), pools, profiles), explain_seconds=0)
    if isinstance(outcome, NoPlan):
        raise SystemExit(outcome.message)
    return sum(outcome.plan.gpus().values())


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short and less precise simulations")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run at each rate")
    options = parser.parse_args()
    seeds = tuple(range(options.seed, options.seed + (1 if options.quick else 3)))
    effort = Effort(
        seconds=5.0 if options.quick else 30.0, seeds=seeds, precision=0.02 if options.quick else 0.005, data=None
    )
    rows = []
    for lengths in LENGTHS:
        say(lengths.name)
        least = None
        for name, sizes in CLASSES.items():
            found = goodput_of(lengths, sizes, effort)
            least = least or found
            tokens = sum(size * share for size, share in zip(sizes, lengths.shares(sizes), strict=True))
            row = {
                "lengths": lengths.name,
                "classes": name,
                "padding": round(1 - float(lengths.drawn.mean()) / tokens, 3),
                "goodput": round(found),
                "times": round(found / least, 2),
                "gpus": gpus_of(lengths, sizes),
            }
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    print(json.dumps({"slo_ms": SLO_MS, "gpus": GPUS, "rate": RATE, "seeds": seeds, "rows": rows}))


if __name__ == "__main__":
    main()
