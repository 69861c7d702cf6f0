"""PARIS: how many slices of each size suit a distribution of batch sizes (PARIS and ELSA, section IV-B, algorithm 1).

A. MaxBatch_knee of a slice size is the batch size from which it is at least 80 % utilized.
B. The knees cut the batch sizes into segments; the n-th smallest slice serves the n-th segment. R_k is the time of
   slice k for a query of the distribution: the sum over the segment of Dist(b) / Throughput(k, b).
C. The available compute slices are divided in proportion to R_k.

The algorithm counts compute slices and fractions of instances. `placed` rounds them to whole instances that fit GPUs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf, isfinite
from typing import Final

from partita_planner.mig.errors import BadDemandError
from partita_planner.mig.packing import (
    MAX_GPUS,
    BatchWorkload,
    NoPacking,
    NoPackingReason,
    Packing,
    fewest_gpus,
    requested_slices,
)
from partita_planner.mig.products import Product
from partita_planner.solver.deadline import Deadline

KNEE: Final = 0.8
"""The utilization at which latency begins to grow as fast as the batch (algorithm 1, line 8)."""


@dataclass(frozen=True)
class SliceCurve:
    """What one slice of a profile does with a model, by batch size."""

    slice: str
    utilization: Mapping[int, float]
    """0 to 1."""
    throughput: Mapping[int, float]
    """Queries per second when every query is a batch of that size."""


@dataclass(frozen=True)
class Segment:
    """The batch sizes that one profile serves, and the slices that it gets."""

    slice: str
    batches: tuple[int, ...]
    """The batch sizes that occur, in order; empty if smaller slices serve them all."""
    ratio: float
    """R_k: seconds of one slice for each query of the whole distribution."""
    instances: float
    """N_k, not rounded."""


@dataclass(frozen=True)
class Paris:
    """The result of PARIS, from the smallest profile to the largest."""

    segments: tuple[Segment, ...]

    @property
    def used(self) -> tuple[str, ...]:
        """The profiles that serve some batch size."""
        return tuple(s.slice for s in self.segments if s.batches)

    def rate(self, instances: Mapping[str, int]) -> float:
        """Queries per second that so many instances serve, each batch size on its own profile."""
        return min(instances.get(s.slice, 0) / s.ratio for s in self.segments if s.batches)


def paris(
    product: Product, curves: Sequence[SliceCurve], distribution: Mapping[int, float], gpus: int, *, knee: float = KNEE
) -> Paris:
    """Algorithm 1 on all compute slices of `gpus` GPUs.

    distribution: how often each batch size occurs, in any unit. Every curve has a throughput for every batch size
    of its segment. The largest profile also serves batches beyond its knee. For a profile that never reaches the knee,
    its largest measured batch counts as the knee. Raises MigError for bad input.
    """
    _check(product, curves, distribution, gpus, knee)
    total = sum(distribution.values())
    ordered = sorted(curves, key=lambda c: (product.slice(c.slice).compute, product.slice(c.slice).memory.value))
    segments: list[Segment] = []
    last_end: float = 0
    for curve in ordered:
        end = inf if curve is ordered[-1] else max(last_end, _max_batch_at_knee(curve, knee))
        batches = tuple(b for b in sorted(distribution) if last_end < b <= end and distribution[b] > 0)
        ratio = sum(distribution[b] / total / _throughput(curve, b) for b in batches)
        segments.append(Segment(curve.slice, batches, ratio, instances=0.0))
        last_end = end
    compute = sum(product.slice(s.slice).compute * s.ratio for s in segments)
    per_ratio = gpus * product.compute / compute
    return Paris(tuple(Segment(s.slice, s.batches, s.ratio, per_ratio * s.ratio) for s in segments))


def placed(product: Product, answer: Paris, gpus: int, deadline: Deadline) -> Packing | NoPacking:
    """PARIS' instances in whole numbers, on GPUs that can hold them.

    Every profile that is used gets its N_k rounded down, but at least one; compute slices that are left go to the
    largest fractions. While the placement table does not allow the result, an instance of the profile that most exceeds
    its share is removed.
    """
    instances = _rounded(product, answer, gpus)
    ratios = {s.slice: s.ratio for s in answer.segments}
    most_ahead_first = sorted(
        ((left / ratios[name], name) for name, count in instances.items() for left in range(1, count)), reverse=True
    )

    def without(given_up: int) -> Packing | NoPacking:
        kept = Counter(instances) - Counter(name for _, name in most_ahead_first[:given_up])
        return fewest_gpus(product, requested_slices(kept), deadline)

    found, too_few, enough = without(0), 0, len(most_ahead_first)
    if isinstance(found, NoPacking) or found.gpus <= gpus:
        return found
    found = without(enough)
    if isinstance(found, Packing) and found.gpus > gpus:
        return NoPacking(
            NoPackingReason.INSUFFICIENT_CAPACITY,
            f"One slice of each profile that PARIS uses ({', '.join(instances)}) needs {found.gpus} GPUs of "
            f"{product.name}, and there are {gpus}: add {found.gpus - gpus}, or measure fewer profiles.",
            found.gpus - gpus,
        )
    while enough - too_few > 1 and isinstance(found, Packing):
        middle = (too_few + enough) // 2
        tried = without(middle)
        if isinstance(tried, Packing) and tried.gpus > gpus:
            too_few = middle
        else:
            found, enough = tried, middle
    return found


def batch_workloads(
    model: str, curves: Sequence[SliceCurve], distribution: Mapping[int, float], rate: float
) -> tuple[BatchWorkload, ...]:
    """The batch sizes of a distribution as workloads that any measured slice may serve, for the exact packing."""
    total = sum(distribution.values())
    return tuple(
        BatchWorkload(
            model=model,
            rate=rate * weight / total,
            throughput={c.slice: c.throughput[batch] for c in curves if batch in c.throughput},
            batch=batch,
        )
        for batch, weight in sorted(distribution.items())
        if weight > 0
    )


def segment_workloads(answer: Paris, workloads: Sequence[BatchWorkload]) -> tuple[BatchWorkload, ...]:
    """The workloads of batch_workloads, each on the profile of its segment only."""
    owner = {batch: segment.slice for segment in answer.segments for batch in segment.batches}
    return tuple(replace(w, throughput={owner[w.batch]: w.throughput[owner[w.batch]]}) for w in workloads)


def check_distribution(distribution: Mapping[int, float]) -> None:
    """Raises BadDemandError unless it gives weights to batch sizes, some of them above 0."""
    if not distribution:
        raise BadDemandError("the distribution of batch sizes is empty; give at least one batch size and its weight")
    for batch, weight in distribution.items():
        if batch < 1 or not (isfinite(weight) and weight >= 0):
            raise BadDemandError(f"batch size {batch} has weight {weight}; sizes begin at 1, weights at 0")
    if not sum(distribution.values()) > 0:
        raise BadDemandError("all weights of the distribution are 0; give at least one above 0")


def _check(
    product: Product, curves: Sequence[SliceCurve], distribution: Mapping[int, float], gpus: int, knee: float
) -> None:
    check_distribution(distribution)
    if not curves:
        raise BadDemandError("no slice was measured; give utilization and throughput of at least one MIG profile")
    if not 1 <= gpus <= MAX_GPUS:
        raise BadDemandError(f"there are {gpus} GPUs to cut; give 1 to {MAX_GPUS}")
    if not 0 < knee <= 1:
        raise BadDemandError(f"the knee is a utilization of {knee}; give one above 0 and up to 1, such as {KNEE}")
    if len({curve.slice for curve in curves}) < len(curves):
        raise BadDemandError(f"each profile is measured once; given are {', '.join(c.slice for c in curves)}")
    for curve in curves:
        product.slice(curve.slice)
        if not curve.utilization:
            raise BadDemandError(f"{curve.slice} has no utilization; PARIS needs it to find the knee")
        for batch, share in curve.utilization.items():
            if not 0 <= share <= 1:
                raise BadDemandError(f"{curve.slice}, batch {batch}: utilization {share} is outside 0 to 1")


def _max_batch_at_knee(curve: SliceCurve, knee: float) -> int:
    """MaxBatch_knee: the smallest batch size at which the slice is utilized that much, else the largest measured."""
    return min((b for b, share in curve.utilization.items() if share >= knee), default=max(curve.utilization))


def _throughput(curve: SliceCurve, batch: int) -> float:
    throughput = curve.throughput.get(batch)
    if throughput is None:
        raise BadDemandError(f"{curve.slice} serves batch {batch}, and its throughput there is unknown: measure it")
    if not (isfinite(throughput) and throughput > 0):
        raise BadDemandError(f"{curve.slice}, batch {batch}: throughput {throughput} must be above 0")
    return throughput


def _rounded(product: Product, answer: Paris, gpus: int) -> dict[str, int]:
    """Whole instances of the profiles that are used, by largest remainder in compute slices."""
    used = [s for s in answer.segments if s.batches]
    instances = {s.slice: max(1, floor(s.instances)) for s in used}
    left = gpus * product.compute - sum(product.slice(name).compute * count for name, count in instances.items())
    for segment in sorted(used, key=lambda s: instances[s.slice] - s.instances):
        compute = product.slice(segment.slice).compute
        if segment.instances > instances[segment.slice] and compute <= left:
            instances[segment.slice] += 1
            left -= compute
    return instances
