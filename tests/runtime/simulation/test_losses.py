"""Simulated losses of replicas: plans with spec.availability serve their share of the rate in time."""

from typing import Any

import pytest
from tests.builders import linear_profiles, pool, problem, session
from tests.planner.problems.planned import planned

from partita_api.inferencesession import ArrivalProcess, Rate
from partita_runtime.simulation.emulation.failures import WorkerFailure
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.simulator import simulate

SECONDS = 10.0
LOST_AT = 1.0
POOLS = [pool("fast").gpus(8).mps(2), pool("slow").gpus(8).price("0.3")]
PROFILES = [
    each.divisors(1, 2) if each.pool == "fast" else each
    for each in linear_profiles(("detect", "read"), {"fast": 1.0, "slow": 3.0})
]
REQUESTS = Rate(requests_per_second=120, arrival=ArrivalProcess.UNIFORM)


def worst_report(availability: dict[str, Any] | None, loss: str | None = None) -> SimulationReport:
    """The report of the loss that costs most, out of all of one replica or one pool, without a replacement."""
    declared = session("s").slo(150).rate(120).chain("detect", "read").planner(margin_percent=20, headroom_percent=20)
    declared = declared.with_spec(rate=REQUESTS, availability=availability)
    asked = problem(declared, POOLS, PROFILES)
    plan = planned(asked)
    replicas = {
        (stage.pool, f"{module.name}/{pipeline.name}/{position}"): stage.replicas
        for module, pipeline, position, stage in plan.stages()
    }
    if loss == "Pool":
        pools = sorted({name for name, _ in replicas})
        lost = [[f"{s}/{n}" for (on, s), c in replicas.items() if on == name for n in range(c)] for name in pools]
    else:
        lost = [[f"{stage}/0"] for _, stage in replicas]
    reports = [
        simulate(
            declared.build(),
            plan,
            asked.profiles,
            seconds=SECONDS,
            seed=1,
            failures=[WorkerFailure(worker, LOST_AT) for worker in workers],
        )
        for workers in lost
    ]
    return min(reports, key=lambda report: report.in_time)


@pytest.mark.parametrize("loss", ["Replica", "Pool"])
def test_the_whole_rate_is_served_in_time_after_a_loss(loss: str) -> None:
    assert worst_report({"survive_loss": loss}, loss).attainment > 0.99


@pytest.mark.parametrize("loss", ["Replica", "Pool"])
def test_the_served_share_is_served_in_time_after_a_loss(loss: str) -> None:
    report = worst_report({"survive_loss": loss, "served_share": "50%"}, loss)

    after = (report.in_time - LOST_AT * 120) / (SECONDS - LOST_AT) / 120
    assert after > 0.5


def test_without_availability_a_lost_replica_may_be_the_only_one() -> None:
    assert worst_report(None).attainment < 0.5
