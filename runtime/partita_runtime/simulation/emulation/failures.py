"""Failures of simulated workers, at given times or at random."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from partita_runtime.simulation.emulation.placement import WorkerPlacement


@dataclass(frozen=True)
class WorkerFailure:
    """A worker is lost with all of its batches; its replacement, if any, has the same name."""

    worker: str
    at_seconds: float
    back_after_seconds: float | None = None


@dataclass(frozen=True)
class GpuFailure:
    """An accelerator fails with all workers on it; it may come back."""

    gpu: str
    at_seconds: float
    back_after_seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> "GpuFailure":
        """`fast-gpu-0@10` fails in second 10; `fast-gpu-0@10+5` comes back 5 s later.

        Raises ValueError.
        """
        gpu, at, times = text.rpartition("@")
        begins, plus, back = times.partition("+")
        try:
            failure = cls(gpu, float(begins), float(back) if plus else None)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a failure; write it such as fast-gpu-0@10 or fast-gpu-0@10+5") from error
        if not at or not gpu or failure.at_seconds < 0 or (failure.back_after_seconds or 0) < 0:
            raise ValueError(f"{text!r} is not a failure; write it such as fast-gpu-0@10 or fast-gpu-0@10+5")
        return failure


@dataclass(frozen=True)
class RandomFailures:
    """Every accelerator fails and comes back, each time after a random (exponential) time."""

    mean_seconds_between: float
    """Mean time that an accelerator works until it fails."""
    mean_seconds_down: float
    """Mean time until it comes back."""

    def __post_init__(self) -> None:
        if self.mean_seconds_between <= 0 or self.mean_seconds_down <= 0:
            raise ValueError(f"{self}: give mean times above 0 s")

    def draw(self, gpus: Iterable[str], seconds: float, generator: np.random.Generator) -> list[GpuFailure]:
        """The failures of the first `seconds`."""
        drawn = []
        for gpu in gpus:
            at = generator.exponential(self.mean_seconds_between)
            while at < seconds:
                down = generator.exponential(self.mean_seconds_down)
                drawn.append(GpuFailure(gpu, at, down))
                at += down + generator.exponential(self.mean_seconds_between)
        return drawn


def gpus_of(placed: Iterable[WorkerPlacement]) -> dict[str, list[str]]:
    """The workers on each accelerator; a worker without one has an accelerator of its own name."""
    workers: dict[str, dict[str, None]] = {}
    for place in placed:
        workers.setdefault(place.gpu or place.worker, {})[place.worker] = None
    return {gpu: list(names) for gpu, names in workers.items()}


Failure = WorkerFailure | GpuFailure | RandomFailures


def worker_failures(
    failures: Iterable[Failure], placed: Sequence[WorkerPlacement], seconds: float, generator: np.random.Generator
) -> list[WorkerFailure]:
    """All failures of the first `seconds` by worker; random failures apply to every accelerator in use.

    Raises ValueError for an accelerator without workers.
    """
    gpus = gpus_of(placed)
    found: list[WorkerFailure] = []
    for failure in failures:
        if isinstance(failure, WorkerFailure):
            found.append(failure)
            continue
        drawn = failure.draw(gpus, seconds, generator) if isinstance(failure, RandomFailures) else [failure]
        for one in drawn:
            if one.gpu not in gpus:
                raise ValueError(f"no accelerator {one.gpu!r} to fail; the plan uses {', '.join(gpus)}")
            found += [WorkerFailure(worker, one.at_seconds, one.back_after_seconds) for worker in gpus[one.gpu]]
    return found
