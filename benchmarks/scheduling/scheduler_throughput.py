"""Throughput of the scheduling core: requests per second on one CPU core, and microseconds per batch of a pipeline.

    python benchmarks/scheduling/scheduler_throughput.py [--models 1 8 64] [--gpus 8 64 512 4096] [--requests 200000]
                                              [--slo 25] [--core interpreted|compiled]

Without network and workers: arrivals are generated in advance (Poisson), and batches end as reserved. Models are
ResNet50 on a 1080Ti (batches of b take 1.053 b + 5.072 ms, b up to 16), all on all GPUs, and keep the GPUs 80 % busy.
Times are CPU times of the core only. The core is measured interpreted and, if it is compiled
(see docs/concepts/scheduling.md), compiled. The last line of the output is a summary in JSON.
"""

import argparse
import gc
import json
import marshal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

ALPHA, BETA = 1053, 5072
BATCH: Final = 16
BUSY: Final = 0.8
KINDS: Final = ("interpreted", "compiled")


def main() -> None:
    """Measure both kinds of the core, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64, 512, 4096])
    parser.add_argument("--slo", type=float, default=25, help="milliseconds for a request")
    parser.add_argument("--requests", type=int, default=200_000, help="measured in each case, after a warm-up")
    parser.add_argument("--core", choices=KINDS, help="only this kind of the core")
    options = parser.parse_args()
    if options.core is None:
        _measure_both(sys.argv[1:])
        return
    if options.core == "compiled" and not is_compiled():
        raise SystemExit("the scheduling core is not compiled here; see docs/concepts/scheduling.md")
    _choose(options.core)
    rows = []
    for models in options.models:
        for gpus in options.gpus:
            measured = throughput(options.core, models, gpus, round(1000 * options.slo), options.requests)
            row = {"core": options.core, "models": models, "gpus": gpus, **measured}
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            rows.append(row)
    pooled = {"core": options.core, **pooled_dispatch(options.requests // 10)}
    print("  ".join(f"{key} {value}" for key, value in pooled.items()), flush=True)
    print(json.dumps({"throughput": rows, "pooled": [pooled]}))


def throughput(kind: str, models: int, gpus: int, slo: int, requests: int) -> dict[str, float]:
    """Requests per second of CPU time in the steady state.

    A first core answers a driver, and its calls are recorded. A second core gets the same calls and makes the same
    decisions; only this core is timed. Each has its own process: with many GPUs the memory access decides the speed,
    and the recorded calls of the first core would fragment the memory of the second one.
    """
    with ProcessPoolExecutor(1, get_context("spawn"), _choose, (kind,), max_tasks_per_child=1) as new_process:
        recorded = new_process.submit(_recorded, models, gpus, slo, requests).result()
        took = new_process.submit(_timed, models, gpus, recorded.warm_up, recorded.measured).result()
    return {
        "requests_per_s": round(requests / took),
        "micros_per_batch": round(took / recorded.batches * 1e6, 1),
        "mean_batch": round(requests / recorded.batches, 1),
        "dropped": round(recorded.dropped / recorded.arrived, 4),
    }


@dataclass(frozen=True)
class RecordedCalls:
    """The calls of a core, as lists in the format of `marshal`."""

    warm_up: bytes
    measured: bytes
    batches: int
    """Batches of the measured part."""
    arrived: int
    dropped: int
    """Dropped requests of all parts."""


def _recorded(models: int, gpus: int, slo: int, requests: int) -> RecordedCalls:
    plan = _one_stage(models, gpus)
    rate = _rate(models, gpus, slo)
    random, at = Random(1), 0.0
    arrivals = []
    for _ in range(round(3 * slo * rate) + requests):
        at += random.expovariate(rate)
        arrivals.append((round(at), plan.modules[random.randrange(models)].name))
    warm_up, measured, batches, dropped = _driven(_core(plan, gpus), arrivals, slo, requests)
    return RecordedCalls(marshal.dumps(warm_up), marshal.dumps(measured), batches, len(arrivals), dropped)


def _timed(models: int, gpus: int, warm_up: bytes, measured: bytes) -> float:
    """Seconds of CPU time of the measured part."""
    core = _core(_one_stage(models, gpus), gpus)
    _repeat(core, marshal.loads(warm_up))
    calls = marshal.loads(measured)
    with _no_collections():
        began = time.process_time()
        _repeat(core, calls)
        return time.process_time() - began


def _one_stage(models: int, gpus: int) -> Any:
    return _plan([f"m{number}" for number in range(models)], [gpus], ALPHA, BETA, BATCH)


def _choose(kind: str) -> None:
    """Import the core of this kind in this process."""
    if kind == "interpreted":
        sys.meta_path.insert(0, _SourceOnly())


Call = tuple[Any, ...]
"""A request that arrives (id, module, deadline, now), a batch that ends (id, stage, now), or `advance` (now)."""


def _driven(
    core: Any, arrivals: list[tuple[int, str]], slo: int, requests: int
) -> tuple[list[Call], list[Call], int, int]:
    """(calls before the last `requests` arrive, calls after that, batches after that, all drops)"""
    from partita_runtime.scheduling.events import Dispatch

    calls: list[Call] = []
    measured: list[Call] = []
    ends: list[tuple[int, int]] = []
    batches = dropped = 0
    for request_id, (at, module) in enumerate(arrivals):
        if request_id == len(arrivals) - requests:
            calls, measured, batches = measured, calls, 0
        wakeup = core.next_wakeup()
        while (wakeup is not None and wakeup < at) or (ends and ends[0][0] <= at):
            now = wakeup if wakeup is not None and (not ends or wakeup < ends[0][0]) else ends[0][0]
            while ends and ends[0][0] <= now:
                calls.append((heappop(ends)[1], 0, now))
                core.completed(*calls[-1])
            calls.append((now,))
            for action in core.advance(now):
                if isinstance(action, Dispatch):
                    batches += 1
                    heappush(ends, (action.finish, action.batch_id))
                else:
                    dropped += 1
            wakeup = core.next_wakeup()
        calls.append((request_id, module, at + slo, at))
        core.arrive(*calls[-1])
    return measured, calls, batches, dropped


def _repeat(core: Any, calls: list[Call]) -> None:
    arrive, completed, advance, next_wakeup = core.arrive, core.completed, core.advance, core.next_wakeup
    for call in calls:
        if len(call) == 4:
            arrive(*call)
        elif len(call) == 3:
            completed(*call)
        else:
            advance(*call)
            next_wakeup()


def _core(plan: Any, gpus: int) -> Any:
    """A core with all GPUs, eight to a node."""
    from partita_runtime.scheduling.core import SchedulingCore
    from partita_runtime.scheduling.events import StageRef

    core = SchedulingCore(plan)
    for gpu in range(gpus):
        for module in plan.modules:
            core.worker_joined(StageRef(module.name, "a", 0), f"gpu-{gpu}", f"node-{gpu // 8}", 0)
    return core


def pooled_dispatch(batches: int) -> dict[str, float]:
    """Microseconds to dispatch one batch on a pipeline of three stages over 100 GPUs, 8 to a node, with slow links."""
    from partita_runtime.scheduling.core import SchedulingCore
    from partita_runtime.scheduling.events import Dispatch, StageRef

    replicas, size, alpha, beta, slo = [40, 30, 30], 4, 900, 4000, 60_000
    plan = _plan(["m"], replicas, alpha, beta, size, bandwidth=1e10, output_bytes=150_000)
    core = SchedulingCore(plan)
    for stage, number in enumerate(replicas):
        for replica in range(number):
            core.worker_joined(StageRef("m", "a", stage), f"{stage}-{replica}", f"node-{stage}-{replica // 8}", 0)
    rate = 0.85 * min(replicas) * size / (alpha * size + beta)
    random, at, ids = Random(1), 0.0, count()
    ends: list[tuple[int, int, int]] = []
    took: list[int] = []
    while len(took) < batches:
        at += random.expovariate(rate)
        arrival = round(at)
        while True:
            wakeup = core.next_wakeup()
            now = min(arrival if wakeup is None else wakeup, ends[0][0] if ends else arrival)
            if now >= arrival:
                break
            while ends and ends[0][0] <= now:
                _, batch_id, stage = heappop(ends)
                core.completed(batch_id, stage, now)
            began = time.perf_counter_ns()
            actions = core.advance(now)
            passed = time.perf_counter_ns() - began
            dispatches = [action for action in actions if isinstance(action, Dispatch)]
            if dispatches:
                took += [passed // len(dispatches)] * len(dispatches)
            for dispatch in dispatches:
                length = alpha * len(dispatch.request_ids) + beta
                for stage, start in enumerate(dispatch.starts):
                    heappush(ends, (start + length, dispatch.batch_id, stage))
        core.arrive(next(ids), "m", arrival + slo, arrival)
    signals = core.signals(round(at)).modules["m"]
    return {
        "pooled_dispatch_micros": round(median(took[len(took) // 4 :]) / 1000, 1),
        "dropped": round(sum(signals.dropped.values()) / signals.arrived, 4),
    }


def is_compiled() -> bool:
    """Whether the scheduling core that would be imported is compiled."""
    spec = find_spec("partita_runtime.scheduling.core")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")


def _plan(
    models: list[str],
    replicas: list[int],
    alpha: int,
    beta: int,
    batch_size: int,
    bandwidth: float = 0.0,
    output_bytes: int = 0,
) -> Any:
    """One pipeline for each model, with these numbers of GPUs per stage."""
    from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan

    latency = tuple(alpha * b + beta for b in range(1, batch_size + 1))
    stages = tuple(
        ScheduledStage(
            pool="gpu",
            first_block=stage,
            end_block=stage + 1,
            vgpu_divisor=1,
            replicas=number,
            latency_micros=latency,
            output_bytes=output_bytes if stage + 1 < len(replicas) else 0,
        )
        for stage, number in enumerate(replicas)
    )
    pipeline = ScheduledPipeline(name="a", batch_size=batch_size, stages=stages)
    return SchedulingPlan(
        name="throughput",
        bandwidth={"gpu": bandwidth} if bandwidth else {},
        modules=tuple(
            ScheduledModule(name=name, budget_micros=0, downstream_micros=0, pipelines=(pipeline,)) for name in models
        ),
    )


def _rate(models: int, gpus: int, slo: int) -> float:
    """Requests per microsecond with which deferred batches, as large as their deadlines allow, keep the GPUs BUSY."""

    def busy(rate: float) -> float:
        size = 1
        while size < BATCH and rate / models * (slo - ALPHA * (size + 1) - BETA) >= size:
            size += 1
        return rate / size * (ALPHA * size + BETA) / gpus

    low, high = 0.0, gpus * BATCH / (ALPHA * BATCH + BETA)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if busy(middle) < BUSY else (low, middle)
    return low


@contextmanager
def _no_collections() -> Iterator[None]:
    """Exclude the existing objects from garbage collection during the measurement."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class _SourceOnly(MetaPathFinder):
    """Finds the source of the scheduling core, even if it is compiled."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("partita_runtime.scheduling.") or path is None:
            return None
        for folder in path:
            source = Path(folder) / f"{fullname.rpartition('.')[2]}.py"
            if source.exists():
                return spec_from_file_location(fullname, source)
        return None


def _measure_both(arguments: list[str]) -> None:
    """Measure each kind of the core in a separate process."""
    summary: dict[str, list[Any]] = {"throughput": [], "pooled": []}
    for kind in KINDS if is_compiled() else KINDS[:1]:
        command = [sys.executable, __file__, *arguments, "--core", kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            line = ""
            for line in child.stdout:
                if not line.startswith("{"):
                    print(line, end="", flush=True)
        if child.returncode:
            raise SystemExit(child.returncode)
        for part, rows in json.loads(line).items():
            summary[part] += rows
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
