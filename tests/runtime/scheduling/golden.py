"""Seeded scenarios with recorded decisions of the core.

`python -m tests.runtime.scheduling.golden` compares the decisions of the installed core, interpreted or compiled. With
`--record` it records them again, after an intended change of the decisions.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from tests.builders import session
from tests.runtime.scheduling.plans import Driver, module, plan_of, refs, stage, worker_name

import partita_runtime.scheduling.core as core_module
from partita_runtime.scheduling.events import Dispatch
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.policies.registry import POLICIES
from partita_runtime.scheduling.requests import RequestGraph, SubRequest

RECORDED: Final = Path(__file__).with_name("golden.json")
_PER_DIGEST: Final = 100


def single_stage(policy: str) -> Driver:
    """Two models, each with its own workers, in and out of overload; some requests are cancelled."""
    random = Random(policy)
    plan = plan_of(
        module("m").pipeline(8, stage("gpu", replicas=3, alpha=105, beta=507)),
        module("n").pipeline(4, stage("gpu", replicas=2, alpha=300, beta=900)),
        policy=policy,
    )
    driver = Driver(plan, took=_noisy(80, 120)).all_join()
    driver.core.set_delays(60, 5)
    _arrivals(driver, random, {"m": 4000, "n": 6000}, gap=60, count=1500, burst=0.3)
    for _ in range(30):
        driver.cancel(random.randrange(1500), random.randrange(150_000))
    return driver.run()


def shared_workers(policy: str) -> Driver:
    """Five models on the same six workers, which have two pipelines for some of them."""
    random = Random(f"shared {policy}")
    models = [
        module(f"m{i}").pipeline(6 + i, stage("gpu", replicas=6, alpha=40 + 30 * i, beta=900 - 150 * i))
        for i in range(5)
    ]
    models[1] = models[1].pipeline(2, stage("gpu", replicas=6, alpha=100, beta=100))
    driver = Driver(plan_of(*models, policy=policy), took=_noisy(95, 110))
    for worker in range(6):
        for ref, _ in refs(driver.plan):
            driver.core.worker_joined(ref, f"gpu-{worker}", f"node-{worker // 2}", 0)
    _arrivals(driver, random, {f"m{i}": 3500 + 900 * i for i in range(5)}, gap=55, count=1500, burst=0.2)
    return driver.run()


def pooled(policy: str) -> Driver:
    """Two pipelines of three and two stages over slow links; execution times far from the profile."""
    random = Random(f"pooled {policy}")
    plan = plan_of(
        module("m")
        .pipeline(
            4,
            stage("slow", replicas=4, alpha=150, beta=500, output_bytes=60),
            stage("fast", replicas=3, alpha=60, beta=400, output_bytes=40),
            stage("slow", replicas=4, alpha=120, beta=700),
        )
        .pipeline(3, stage("fast", replicas=2, alpha=80, beta=300, output_bytes=50), stage("fast", replicas=2)),
        policy=policy,
        bandwidth={"slow": 4e6, "fast": 1e7},
    )
    driver = Driver(plan, workers_per_node=2, took=_noisy(50, 220)).all_join()
    driver.core.set_delays(40, 2)
    _arrivals(driver, random, {"m": 9000}, gap=180, count=900, burst=0.2)
    return driver.run()


def coming_and_going(policy: str) -> Driver:
    """Workers are lost, join again and drain, and batches fail, under continuous load."""
    random = Random(f"coming and going {policy}")
    plan = plan_of(
        module("m")
        .pipeline(4, stage("a", replicas=4, output_bytes=30), stage("b", replicas=3, alpha=200, beta=300))
        .pipeline(6, stage("c", replicas=3, alpha=120, beta=600)),
        policy=policy,
        bandwidth={"a": 8e6},
    )
    driver = Driver(plan, workers_per_node=2, took=_noisy(70, 140)).all_join()
    _arrivals(driver, random, {"m": 7000}, gap=110, count=1200, burst=0.1)

    def drain(name: str) -> None:
        driver.core.worker_draining(name, driver.now)

    replicas = [(ref, replica) for ref, spec in refs(plan) for replica in range(spec.replicas)]
    for _ in range(25):
        ref, replica = random.choice(replicas)
        when = random.randrange(130_000)
        if random.random() < 0.7:
            driver.lose(worker_name(ref, replica), when)
        else:
            driver.at(when, partial(drain, worker_name(ref, replica)))
        driver.at(when + random.randrange(9000), partial(driver.join, ref, replica))
    for _ in range(20):
        driver.fail(random.randrange(250), random.randrange(130_000))
    return driver.run()


def plan_switches(policy: str) -> Driver:
    """Three plans one after the other, which share some stages, and then the first one again."""
    random = Random(f"plan switches {policy}")
    first = plan_of(
        module("m").pipeline(4, stage("gpu", replicas=3)),
        module("n").pipeline(3, stage("gpu", replicas=2, alpha=200)),
        name="first",
        policy=policy,
    )
    larger = plan_of(
        module("m").pipeline(8, stage("gpu", replicas=4)),
        module("n").pipeline(3, stage("gpu", alpha=150), stage("big")),
        name="larger",
        policy=policy,
    )
    without = plan_of(module("m").pipeline(8, stage("big", replicas=5, alpha=60)), name="without n", policy=policy)
    driver = Driver(first, took=_noisy(90, 130)).all_join()
    for plan in (larger, without):
        for ref, spec in refs(plan):
            for replica in range(spec.replicas):
                name = f"{plan.name}:{worker_name(ref, replica)}"
                driver.core.worker_joined(ref, name, name, 0, plan.name)
    _arrivals(driver, random, {"m": 5000}, gap=90, count=1000, burst=0.2)
    _arrivals(driver, random, {"n": 7000}, gap=300, count=140, burst=0.0, first_id=1000)

    def switch(plan: SchedulingPlan) -> None:
        driver.plan = plan
        driver.core.switch_plan(plan, driver.now)

    for when, plan in ((20_000, larger), (55_000, without), (80_000, first)):
        driver.at(when, partial(switch, plan))
    return driver.run()


def fan_out(policy: str) -> Driver:
    """A detector whose answers hold up to three samples for each of two classifiers, which are joined."""
    random = Random(f"fan-out {policy}")
    application = (
        session("traffic")
        .model("detect")
        .function("crop", max_millis=1)
        .model("car")
        .model("person")
        .function("merge", max_millis=1)
        .edge("detect", "crop")
        .edge("crop", "car", mean="1.5", most=3)
        .edge("crop", "person", mean="1", most=2)
        .edge("car", "merge")
        .edge("person", "merge")
    )
    plan = plan_of(
        module("detect", budget_micros=4000).pipeline(4, stage("gpu", replicas=2, output_bytes=20), stage("gpu")),
        module("car", budget_micros=5000).pipeline(8, stage("gpu", replicas=3, alpha=150)),
        module("person", budget_micros=5000).pipeline(6, stage("gpu", replicas=2, alpha=250)),
        policy=policy,
    )
    driver = Driver(plan, took=_noisy(90, 110)).all_join()
    graph = RequestGraph(application.build().spec, plan)
    crops: set[int] = set()

    def spawn(request_id: int | None, subs: list[SubRequest]) -> None:
        for sub in subs:
            if sub.module in ("crop", "merge"):
                crops.update([sub.sub_id] if sub.module == "crop" else [])
                driver.at(driver.now + 300, partial(ended, sub.sub_id, True))
            else:
                driver.arrive(sub.sub_id, sub.module, driver.now, sub.deadline, request_id)

    def ended(sub_id: int, answered: bool) -> None:
        samples = {"car": random.randrange(4), "person": random.randrange(3)}
        if answered:
            spawn(graph.request_of(sub_id), graph.completed(sub_id, samples if sub_id in crops else None))
        else:
            for sub in graph.failed(sub_id):
                driver.cancel(sub.sub_id, driver.now)

    def start(request_id: int) -> None:
        spawn(request_id, graph.start(request_id, driver.now + 16_000, {"detect": 1}))

    driver.ended = ended
    at = 0
    for request_id in range(300):
        at += round(random.expovariate(1 / 260))
        driver.at(at, partial(start, request_id))
    return driver.run()


SCENARIOS: Final[dict[str, Callable[[str], Driver]]] = {
    "single stage": single_stage,
    "shared workers": shared_workers,
    "pooled": pooled,
    "coming and going": coming_and_going,
    "plan switches": plan_switches,
    "fan-out": fan_out,
}
CASES: Final = [(scenario, policy) for scenario in SCENARIOS for policy in POLICIES]


def decisions(scenario: str, policy: str) -> list[str]:
    """Every dispatch and every drop of a scenario in order, one line each; the last line has the counters."""
    driver = SCENARIOS[scenario](policy)
    lines = [(at, 0, _dispatch(dispatch)) for at, dispatch in driver.dispatches]
    lines += [(at, 1, f"{drop.request_id} {drop.reason} {drop.detail}") for at, drop in driver.drops.values()]
    signals = driver.core.signals(driver.now)
    ends = [f"{name} {m.in_time} {m.late} {m.cancelled} {m.queueing_micros}" for name, m in signals.modules.items()]
    ends += [f"{name} {worker.busy_micros}" for name, worker in signals.workers.items()]
    ends += [f"{ref} {stage.correction:.6f}" for ref, stage in signals.stages.items()]
    return [f"{at} {line}" for at, _, line in sorted(lines, key=lambda each: each[:2])] + ends


def digests(lines: list[str]) -> list[str]:
    """The number of decisions, and a digest of every hundred, to find the first difference."""
    return [str(len(lines))] + [
        sha256("\n".join(lines[i : i + _PER_DIGEST]).encode()).hexdigest()[:12]
        for i in range(0, len(lines), _PER_DIGEST)
    ]


def recorded() -> dict[str, list[str]]:
    """The recorded digests, by scenario and policy."""
    found: dict[str, list[str]] = json.loads(RECORDED.read_text())
    return found


def name_of(scenario: str, policy: str) -> str:
    """The name of a scenario under a policy in the record."""
    return f"{scenario}, {policy}"


def _dispatch(dispatch: Dispatch) -> str:
    return " ".join(str(getattr(dispatch, name)) for name in Dispatch.__match_args__)


def _noisy(least: int, most: int) -> Callable[[Dispatch, int, int], int]:
    """Executions take between `least` and `most` per cent of the profiled time, with a fixed seed."""

    def took(dispatch: Dispatch, number: int, profiled: int) -> int:
        draw = (dispatch.batch_id * 2654435761 + number * 40503) % 1009
        return max(1, profiled * (least + (most - least) * draw // 1009) // 100)

    return took


def _arrivals(
    driver: Driver, random: Random, slacks: dict[str, int], gap: int, count: int, burst: float, first_id: int = 0
) -> None:
    """Poisson arrivals for all models in turn; a share of them arrive together with the previous one."""
    names, at = list(slacks), 0
    for request_id in range(first_id, first_id + count):
        if random.random() >= burst:
            at += round(random.expovariate(1 / gap))
        name = random.choice(names)
        driver.arrive(request_id, name, at, at + slacks[name] + random.randrange(0, slacks[name] // 8))


def main() -> int:
    """Compare, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"write {RECORDED.name}")
    record = parser.parse_args().record
    found = {name_of(*case): digests(decisions(*case)) for case in CASES}
    if record:
        lines = [f"{json.dumps(name)}: {json.dumps(digest)}" for name, digest in found.items()]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    different = [name for name, digest in recorded().items() if found.get(name) != digest]
    print(json.dumps({"core": core_module.__file__, "different": different}))
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
