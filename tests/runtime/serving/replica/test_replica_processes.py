"""Replicas in separate processes that hang, have another clock, or lose their network."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from tests.runtime.serving.in_process.stand import Stand, post, stand, until
from tests.runtime.serving.plans import application
from tests.runtime.serving.replica.replica_process import ReplicaProcess, replica_process

ONE = application("one").model("only").slo(18_000)
"""The SLO is longer than the detection of a replica that hangs, so no request may be late."""


@contextlib.asynccontextmanager
async def served_by(*replicas: ReplicaProcess) -> AsyncIterator[Stand]:
    """The session with these replicas; the first one takes a batch whenever it is free."""
    (arguments,) = ONE.stage_arguments()
    async with stand(ONE) as running:
        local = running.replica_of(0)
        for count, replica in enumerate(replicas):
            running.announce(arguments, replica.address)
            await until(lambda most=count + 2: ready(running) == most, "the replica has joined")
        await running.kill(local)
        await until(lambda: ready(running) == len(replicas), "the replica here is gone")
        yield running


def ready(running: Stand) -> int:
    (stage,) = running.session.signals().stages
    return stage.ready


async def test_a_request_in_a_replica_that_hangs_is_answered_once_by_another() -> None:
    (arguments,) = ONE.stage_arguments()
    async with (
        replica_process(arguments) as first,
        replica_process(arguments) as second,
        served_by(first, second) as running,
    ):
        first.stop()
        assert (await post(running))[0] == 200
        assert ready(running) == 1
        first.resume()
        await until(lambda: ready(running) == 2, "it takes batches again")
        assert (await post(running))[0] == 200
        assert running.session.meter.outcomes == {"in_time": 2}


@pytest.mark.parametrize("seconds", [0.5, -0.5, 1e6], ids=["half a second ahead", "half a second behind", "days ahead"])
async def test_a_replica_may_have_any_clock(seconds: float) -> None:
    """If its clock were compared with the frontend's, the measured delay would be days, limited to the maximum."""
    (arguments,) = ONE.stage_arguments()
    async with replica_process(arguments, clock_seconds=seconds) as replica, served_by(replica) as running:
        for _ in range(20):
            assert (await post(running))[0] == 200
        (stage,) = running.session.signals().stages
        assert 0 < stage.actual_micros < 60_000_000
        assert running.session.serving is not None
        sending, _ = running.session.serving.dispatcher.margins.sending.line(0)
        assert 0 < sending < 18_000_000 // 5
        assert running.session.meter.outcomes == {"in_time": 20}


@dataclass(frozen=True)
class Link:
    """A network between this machine and a network namespace."""

    name: str
    here: str
    there: str

    @property
    def within(self) -> tuple[str, ...]:
        """The prefix of a command that runs in the namespace."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Drop all packets in both directions without an error."""
        _run(*self.within, "ip", "link", "set", "there", "down")

    def mend(self) -> None:
        """Restore the network."""
        _run(*self.within, "ip", "link", "set", "there", "up")


@pytest.fixture
def link() -> Iterator[Link]:
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` to make a network namespace with (Debian: iproute2)")
    number = os.getpid()
    made = Link(f"partita-{number}", f"198.18.{number % 251}.1", f"198.18.{number % 251}.2")
    device = f"pt{number}"
    try:
        _run("ip", "netns", "add", made.name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", "there", "netns", made.name)
        _run("ip", "address", "add", f"{made.here}/30", "dev", device)
        _run("ip", "link", "set", device, "up")
        _run(*made.within, "ip", "address", "add", f"{made.there}/30", "dev", "there")
        made.mend()
        yield made
    finally:
        _run("ip", "netns", "delete", made.name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


async def test_requests_run_elsewhere_when_the_network_to_a_replica_is_cut(link: Link) -> None:
    (arguments,) = ONE.stage_arguments()
    async with (
        replica_process(arguments, link.there, within=link.within) as away,
        replica_process(arguments) as near,
        served_by(away, near) as running,
    ):
        assert (await post(running))[0] == 200
        link.cut()
        answers = await asyncio.gather(*(post(running) for _ in range(5)))
        assert [status for status, _ in answers] == [200] * 5
        assert ready(running) == 1
        link.mend()
        await until(lambda: ready(running) == 2, "it takes batches again")
        assert running.session.meter.outcomes == {"in_time": 6}
