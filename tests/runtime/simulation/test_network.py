"""Transfers between emulated nodes: one after the other, or together."""

import pytest
from benchmarks.scheduling.goodput_cases.links import WithoutFeedback
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.emulation.clock import VirtualClock
from partita_runtime.simulation.emulation.network import Contention, EmulatedNode, network_of
from partita_runtime.simulation.streams import RequestStream, simulate_streams

Transfer = tuple[int, str, str, int]
"""Start, source, destination, and microseconds that it takes alone."""


@pytest.mark.parametrize(
    ("contention", "transfers", "want_ends"),
    [
        pytest.param(Contention(), [(0, "a", "b", 100), (0, "a", "c", 100)], [100, 200], id="one after the other"),
        pytest.param(Contention(), [(0, "a", "b", 100), (0, "c", "d", 100)], [100, 100], id="on different links"),
        pytest.param(Contention(others=0.5), [(0, "a", "b", 100)], [200], id="half is used by other traffic"),
        pytest.param(Contention(True), [(0, "a", "b", 100)], [100], id="alone"),
        pytest.param(Contention(True), [(0, "a", "b", 100), (0, "a", "c", 100)], [200, 200], id="half of an uplink"),
        pytest.param(Contention(True), [(0, "a", "c", 100), (0, "b", "c", 100)], [200, 200], id="half of a downlink"),
        pytest.param(Contention(True), [(0, "a", "b", 100), (50, "a", "c", 100)], [150, 200], id="shares change"),
        pytest.param(Contention(True, 0.5), [(0, "a", "b", 100), (0, "a", "c", 50)], [300, 200], id="of the rest"),
        pytest.param(Contention(True), [(5, "a", "a", 100), (7, "a", "b", 0)], [5, 7], id="nothing to send"),
    ],
)
def test_transfers_end_at_the_expected_times(
    contention: Contention, transfers: list[Transfer], want_ends: list[int]
) -> None:
    clock = VirtualClock()
    network = network_of(contention, clock)
    nodes = {name: EmulatedNode() for name in "abcd"}
    ends: dict[int, int] = {}

    def ended(number: int) -> None:
        ends[number] = clock.now

    for number, (at, source, target, micros) in enumerate(transfers):
        clock.at(at, network.send, nodes[source], nodes[target], micros, ended, number)
    clock.run_until(10_000)

    assert [ends[number] for number in range(len(transfers))] == want_ends


def test_other_traffic_makes_reserved_batches_late() -> None:
    plan = plan_of(
        module("m").pipeline(
            4,
            stage("fast", replicas=3, alpha=500, beta=1000, output_bytes=100_000),
            stage("slow", replicas=5, alpha=1000, beta=2000),
        ),
        bandwidth={"fast": 1e9, "slow": 1e9},
    )
    stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, 700), 25)
    alone, crowded = (
        simulate_streams(plan, [stream], 2, 1, contention=contention)["m"]
        for contention in (Contention(), Contention(together=True, others=0.6))
    )

    assert alone.late == 0
    assert crowded.late > 0
    assert crowded.in_time + crowded.late + sum(crowded.dropped.values()) == crowded.offered


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("lacking", [0.5, 0.8])
def test_declaration_that_is_wrong_costs_little(lacking: float, together: bool) -> None:
    """The network has a half or a fifth of the declared bandwidth; the right declaration serves only a little more."""
    plan = plan_of(
        module("m").pipeline(
            4,
            stage("fast", replicas=3, alpha=500, beta=1000, output_bytes=100_000),
            stage("slow", replicas=5, alpha=1000, beta=2000),
        ),
        bandwidth={"fast": 2.5e9, "slow": 2.5e9},
    )
    right = plan.model_copy(update={"bandwidth": {pool: bits * (1 - lacking) for pool, bits in plan.bandwidth.items()}})
    stream = RequestStream("m", arrivals_at(ArrivalProcess.POISSON, 800), 25)
    network = Contention(together, lacking)
    without, measured, declared = (
        simulate_streams(declaration, [stream], 10, 1, contention=contention, core=core)["m"].in_time
        for declaration, contention, core in (
            (plan, network, WithoutFeedback(plan)),
            (plan, network, None),
            (right, Contention(together), None),
        )
    )

    assert measured >= 0.97 * declared
    assert without < measured


@pytest.mark.parametrize("others", [-0.1, 1.0])
def test_invalid_contention(others: float) -> None:
    with pytest.raises(ValueError, match="from 0 to below 1"):
        Contention(others=others)
