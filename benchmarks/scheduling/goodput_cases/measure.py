"""Shared by all experiments: models with linear latency on one pool of GPUs, and the search for their goodput."""

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.placement import WorkerPlacement
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.streams import RequestStream, simulate_streams

LARGEST_BATCH = 256
TARGET = 0.99
"""Target share of each model's requests that are in time."""
BOUND = "(bound)"
"""The subject of a row with an upper bound for all schedulers."""


@dataclass(frozen=True)
class Effort:
    """How long and how often to simulate."""

    seconds: float
    seeds: tuple[int, ...]
    precision: float
    """Precision of the bisection, relative to its upper bound."""
    data: Path | None
    """Folder with the reference data, for the experiments that need it."""
    quick: bool = False
    """Whether to run only a part of the cases."""


@dataclass(frozen=True)
class Row:
    """One line of the table: measured figures and those of the paper."""

    case: str
    subject: str
    """The policy, or another subject of the comparison."""
    figures: Mapping[str, float]
    paper: str = ""


Experiment = Callable[[Effort], Sequence[Row]]


@dataclass(frozen=True)
class Model:
    """A batch of b takes alpha * b + beta milliseconds."""

    name: str
    alpha_ms: float
    beta_ms: float
    slo_ms: float

    def latency_ms(self, batch: int) -> float:
        """Milliseconds of one batch."""
        return self.alpha_ms * batch + self.beta_ms

    def largest_batch(self, within_ms: float) -> int:
        """The largest batch within this time; at least 1."""
        fitting = int((within_ms - self.beta_ms) / self.alpha_ms + 1e-9)
        return max(1, min(LARGEST_BATCH, fitting))

    def staggered_batch(self, gpus: int) -> int:
        """The batch size of staggered execution (Symphony, equation 1)."""
        return self.largest_batch(self.slo_ms / (1 + 1 / gpus))

    def uncoordinated_batch(self) -> int:
        """The batch size of GPUs with one queue per GPU (Symphony, section 5.3)."""
        return self.largest_batch(self.slo_ms / 2)

    def planned(self, batch: int, replicas: int) -> ScheduledModule:
        """The model as one stage on the pool `gpu`."""
        stage = ScheduledStage(
            pool="gpu",
            first_block=0,
            end_block=1,
            vgpu_divisor=1,
            replicas=replicas,
            latency_micros=tuple(round(1000 * self.latency_ms(b)) for b in range(1, batch + 1)),
        )
        return ScheduledModule(
            name=self.name,
            budget_micros=round(1000 * self.slo_ms),
            downstream_micros=0,
            pipelines=(ScheduledPipeline(name="a", batch_size=batch, stages=(stage,)),),
        )


@dataclass(frozen=True)
class Deployment:
    """Models on GPUs under a policy."""

    plan: SchedulingPlan
    placed: tuple[WorkerPlacement, ...]
    slos: Mapping[str, float]

    def run(
        self,
        rates: Mapping[str, float],
        seconds: float,
        seed: int,
        process: ArrivalProcess = ArrivalProcess.POISSON,
        shape: float = 1.0,
    ) -> dict[str, SimulationReport]:
        """Simulate; rates are requests per second by model."""
        streams = [
            RequestStream(name, arrivals_at(process, rate, shape), self.slos[name]) for name, rate in rates.items()
        ]
        return simulate_streams(self.plan, streams, seconds, seed, placed=self.placed)

    def goodput(self, at_most: float, effort: Effort) -> float:
        """The highest total rate, the same for every model, at which each model has 99 % in time, for every seed."""
        names = list(self.slos)

        def worst(rate: float) -> float:
            rates = dict.fromkeys(names, rate / len(names))
            least = 1.0
            for seed in effort.seeds:
                least = min(least, *(report.attainment for report in self.run(rates, effort.seconds, seed).values()))
                if least < TARGET:  # overload takes the longest to simulate
                    break
            return least

        return goodput(worst, at_most, TARGET, effort.precision)


def shared(models: Sequence[Model], gpus: int, policy: str) -> Deployment:
    """Every model on every GPU."""
    batch = Model.uncoordinated_batch if policy.startswith("ServeBatch") else lambda model: model.staggered_batch(gpus)
    plan = SchedulingPlan(name="shared", policy=policy, modules=tuple(m.planned(batch(m), gpus) for m in models))
    placed = tuple(
        WorkerPlacement(StageRef(model.name, "a", 0), f"gpu-{number}", f"node-{number}")
        for number in range(gpus)
        for model in models
    )
    return Deployment(plan, placed, {model.name: model.slo_ms for model in models})


def bad_and_idle(reports: Mapping[str, SimulationReport], gpus: int) -> tuple[float, float]:
    """The share of all requests that were not in time, and the idle share of the GPUs' time."""
    offered = sum(report.offered for report in reports.values())
    in_time = sum(report.in_time for report in reports.values())
    any_report = next(iter(reports.values()))  # each has the workers of all
    return 1 - in_time / max(1, offered), sum(any_report.idle_by_worker.values()) / gpus


def read_models(data: Path, gpu: str, keep: Callable[[Model], bool] = lambda _: True) -> list[Model]:
    """The models of Symphony's Table 4 on one kind of GPU."""
    with (data / "symphony" / "linear_profiles.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["gpu"] == gpu]
    models = [Model(r["model"], float(r["alpha_ms"]), float(r["beta_ms"]), float(r["slo_ms"])) for r in rows]
    return [model for model in models if keep(model)]


def say(*words: Any) -> None:
    """Print progress to stderr."""
    print(*words, file=sys.stderr, flush=True)
