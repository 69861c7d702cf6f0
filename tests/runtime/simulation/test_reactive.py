"""The reactive data plane: each pool batches by itself, without reservations."""

import pytest
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at, arrivals_from_trace
from partita_runtime.simulation.reactive import simulate_reactive
from partita_runtime.simulation.streams import RequestStream, simulate_streams


def two_pools(bits_per_second: float) -> SchedulingPlan:
    """1 ms in each of two pools, and 8000 bits between them."""
    first = stage("net", replicas=4, alpha=0, beta=1000, output_bytes=1000)
    return plan_of(
        module("m").pipeline(1, first, stage("net", replicas=4, alpha=0, beta=1000)), bandwidth={"net": bits_per_second}
    )


def test_a_request_takes_the_time_of_its_stages_and_transfers() -> None:
    stream = RequestStream("m", arrivals_from_trace([0.1, 10]), 6)
    report = simulate_reactive(two_pools(8e6), [stream], 1, seed=0)["m"]

    assert (report.offered, report.in_time) == (1, 1)
    assert report.p50_ms == 3


def test_every_request_ends_once() -> None:
    stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, 5000), 6)
    report = simulate_reactive(two_pools(8e6), [stream], 1, seed=1)["m"]

    assert report.in_time + report.late + sum(report.dropped.values()) == report.offered
    assert sum(report.dropped.values()) > 0


def test_reservations_serve_more_over_slow_links() -> None:
    plan, stream = two_pools(9e6), RequestStream("m", arrivals_at(ArrivalProcess.POISSON, 3000), 5)
    reserved = simulate_streams(plan, [stream], 2, seed=1)["m"]
    reactive = simulate_reactive(plan, [stream], 2, seed=1)["m"]

    assert reserved.offered == reactive.offered
    assert reserved.attainment > reactive.attainment + 0.005


def test_queries_of_several_samples_are_refused() -> None:
    stream = RequestStream(
        "m", arrivals_at(ArrivalProcess.POISSON, 10), 6, lambda count, _: pytest.fail(f"drew {count}")
    )
    with pytest.raises(ValueError, match="streams without sizes"):
        simulate_reactive(two_pools(8e6), [stream], 1, seed=0)
