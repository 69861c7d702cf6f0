"""How planning for most throughput scales with GPU classes, GPUs and modules.

    python benchmarks/planner/planner_scaling.py [--seconds N] [--only TEXT]

Profiles are synthetic, and equal in every run: 10 blocks, batches of 1 to 16, vGPUs of 1/1 to 1/4, classes that are
slower by a factor that differs from block to block. Each module has an SLO of five times its latency on the fastest
class, less 40 %, and weighs the same. Stages own whole GPUs; pipelines have up to two stages. For each case: the share
of the bound of the linear relaxation that is reached, the proven gap that is left, and seconds of wall clock and of
CPU. Progress goes to stderr, a table and at last a JSON summary to stdout.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil
from random import Random

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPoolSpec, Sharing, SharingMode
from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.module import ModelSource, TensorSpec
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found
from partita_planner.allocation.throughput import most_throughput, throughput_bound
from partita_planner.problem import Pool
from partita_planner.solver.deadline import Deadline
from partita_planner.templates.enumeration import enumerate_templates
from partita_planner.templates.templates import TemplateLimits, module_classes

SLOWNESS = {"a": 1.0, "b": 1.7, "c": 2.4, "d": 3.5}
BATCHES = tuple(range(1, 17))
BLOCKS = 10


@dataclass(frozen=True)
class Case:
    """One planning problem."""

    classes: int
    gpus: int
    """Of all classes together; faster ones are fewer."""
    modules: int

    @property
    def name(self) -> str:
        """Name in the output."""
        return f"{self.classes} classes, {self.gpus} GPUs, {self.modules} modules"

    def pools(self) -> tuple[Pool, ...]:
        """The pools: shares of 1 : 2 : ... of the GPUs, the fastest class first."""
        parts = self.classes * (self.classes + 1) // 2
        counts = [self.gpus * (k + 1) // parts for k in range(self.classes)]
        counts[-1] += self.gpus - sum(counts)
        spec = GPUPoolSpec(bandwidth=Quantity("20G"), sharing=Sharing(mode=SharingMode.MPS, max_divisor=4))
        return tuple(Pool(name, spec, count) for name, count in zip(SLOWNESS, counts, strict=False))


CASES = (
    *(Case(classes, 100, 3) for classes in (2, 3, 4)),
    *(Case(classes, 24, 3) for classes in (2, 3, 4)),
    *(Case(3, 100, modules) for modules in (1, 6, 18)),
    *(Case(4, 100, modules) for modules in (1, 6, 18)),
    *(Case(3, gpus, 3) for gpus in (1_000, 10_000, 100_000)),
    *(Case(4, 100_000, modules) for modules in (3, 18)),
)


@dataclass(frozen=True)
class Row:
    """The measurements of a case."""

    case: str
    templates: int
    of_bound: float
    """Objective divided by the bound of the linear relaxation."""
    gap: float
    """Distance to the proven bound, relative to the objective."""
    enumeration_seconds: float
    seconds: float
    """Wall clock of everything."""
    cpu_seconds: float


def main() -> None:
    """Plans every case and prints the results."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=5.0, help="time limit of each case")
    arguments.add_argument("--only", default="", help="only the cases with this text in their names")
    options = arguments.parse_args()
    rows = [measured(case, options.seconds) for case in CASES if options.only in case.name]
    print(f"{'case':36} {'templates':>9} {'of LP bound':>11} {'gap':>8} {'seconds':>8} {'CPU':>6}")
    for row in rows:
        print(
            f"{row.case:36} {row.templates:9} {row.of_bound:11.5f} {row.gap:8.5f} {row.seconds:8.2f} "
            f"{row.cpu_seconds:6.2f}"
        )
    print(json.dumps({"cases": [asdict(row) for row in rows]}))


def measured(case: Case, seconds: float) -> Row:
    """Plan one case."""
    print(f"planning {case.name}", file=sys.stderr, flush=True)
    began, cpu = time.perf_counter(), time.process_time()
    deadline = Deadline.after(seconds, time.perf_counter)
    demands = list(_demands(case))
    enumeration = time.perf_counter() - began
    resources = AvailableResources({pool.name: pool for pool in case.pools()}, whole_gpus=True)
    found = most_throughput(demands, resources, deadline)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    value, bound = (found.value, found.bound) if isinstance(found, Found) else (0.0, 0.0)
    relaxed = throughput_bound(demands, resources, Deadline.after(60, time.perf_counter))
    return Row(
        case=case.name,
        templates=sum(len(d.templates) for d in demands),
        of_bound=value / relaxed,
        gap=bound / value - 1 if value else 1.0,
        enumeration_seconds=enumeration,
        seconds=wall,
        cpu_seconds=used,
    )


def _demands(case: Case) -> Iterator[ModuleDemand]:
    pools = case.pools()
    for index in range(case.modules):
        module = f"m{index}"
        random = Random(index)
        millis = random.uniform(4, 20)
        blocks = [random.uniform(0.6, 1.4) * millis / BLOCKS for _ in range(BLOCKS)]
        cuts = tuple(Cut(bytes=random.randrange(50_000, 600_000)) for _ in range(BLOCKS - 1))
        profiles = {(module, name): _profile(module, name, blocks, cuts, random) for name in SLOWNESS}
        limits = TemplateLimits(
            budget_micros=ceil(millis * 1000 * 5 * 0.6),
            collection=lambda batch: (batch - 1) * 200,
            max_stages=2,
            whole_gpus=True,
            latency_counts=False,
        )
        templates = enumerate_templates(module_classes(module, pools, profiles, fp16_cuts=True), limits).templates
        yield ModuleDemand(module, 1.0, 1.0, templates)


def _profile(module: str, pool: str, millis: list[float], cuts: tuple[Cut, ...], random: Random) -> Profile:
    """One class's profile: batches pay up to a point, and small vGPUs use a GPU a little better."""
    factors = [SLOWNESS[pool] * random.uniform(0.75, 1.25) for _ in range(BLOCKS)]
    request = ProfileRequest(
        model=ModelSource(file=module), input=TensorSpec(shape=(1,)), blocks=BLOCKS, batch_sizes=BATCHES, pool=pool
    )
    return Profile(
        key=request.key,
        request=request,
        partition="even",
        batch_sizes=BATCHES,
        latency=tuple(
            VgpuLatency(
                divisor=divisor,
                median_micros=tuple(
                    tuple(1000 * block * factor * divisor**0.9 * (0.4 + 0.6 * batch**0.95) for batch in BATCHES)
                    for block, factor in zip(millis, factors, strict=True)
                ),
            )
            for divisor in (1, 2, 3, 4)
        ),
        cuts=cuts,
    )


if __name__ == "__main__":
    main()
