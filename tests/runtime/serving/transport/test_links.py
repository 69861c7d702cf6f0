"""The network between two stages is slower than declared: each transfer is measured."""

import dataclasses

import pytest
from tests.runtime.serving.central.local_coordinator import local_coordinator
from tests.runtime.serving.in_process.stand import Stand, post, stand, until
from tests.runtime.serving.plans import application
from tests.runtime.serving.transport.relay import Relay, relay

from partita_api.session.frontend import Frontend
from partita_runtime.serving.telemetry.signals import SessionStageSignals

DECLARED = 8e9
APP = dataclasses.replace(application("two").model("only"), stages=2, cut_bytes=500_000, bandwidth=DECLARED)
"""A sample has 250 kB between the stages, which should take 250 us."""
REAL_BYTES = 10e6
REQUESTS = 20


async def behind(running: Stand, way: Relay) -> None:
    """Replace the replica of the second stage by one behind a relay."""
    await running.kill(running.replica_of(1))
    await running.add_replica(APP.stage_arguments()[1], way=way.lead_to)
    await until(lambda: way.connections and running.session.ready, "the frontend has found the new replica")


@pytest.mark.parametrize("frontends", ["one", "several"])
async def test_transfers_tell_the_bandwidth_and_a_wrong_declaration_is_said(frontends: str) -> None:
    app = APP.with_spec(frontend=Frontend(replicas=2)) if frontends == "several" else APP
    async with (
        local_coordinator(app) as coordinator,
        stand(app, coordinator=coordinator) as running,
        relay() as way,
    ):
        way.bytes_per_second = REAL_BYTES
        await behind(running, way)
        for _ in range(REQUESTS):
            assert (await post(running))[0] == 200
        await until(lambda: link(running).actual_micros, "the coordinator has measured")
        signals = running.session.signals()

    assert link(running).declared_transfer_micros == 250
    assert link(running).actual_transfer_micros > 2000
    assert link(running).link_bits_per_second < DECLARED / 4
    (said,) = [text for text in signals.warnings if "bandwidth" in text]
    assert said.startswith(
        "only/p0/1: transfers to it take more than 1.5 times what the bandwidth of pool emulated says"
    )


async def test_small_transfers_may_take_longer_than_declared() -> None:
    async with stand(dataclasses.replace(APP, cut_bytes=256)) as running:
        for _ in range(REQUESTS):
            assert (await post(running))[0] == 200
        signals = running.session.signals()

    assert not [text for text in signals.warnings if "bandwidth" in text]


def link(running: Stand) -> SessionStageSignals:
    """The signals of the second stage."""
    return running.session.signals().stages[1]
