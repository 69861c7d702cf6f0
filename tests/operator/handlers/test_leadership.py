"""Replicas of the operator compete for the Lease: one leads, and when it is killed another one leads."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.handlers.skipping_loop import run
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session

from partita_operator.handlers.leadership import Leadership, LeadershipLostError
from partita_operator.kube.errors import ApiUnreachableError
from partita_operator.reconcile.leadership import LeaseRecord
from partita_operator.settings.model import LeaderElectionSettings

DURATION = 15


@dataclass
class LeaseDouble:
    """A Lease in memory. A write succeeds only on the version that the writer has read."""

    record: LeaseRecord | None = None
    away: bool = False
    hangs: bool = False
    """Whether requests get no answer."""
    writes: list[str] = field(default_factory=list)

    async def read(self) -> LeaseRecord | None:
        await self._answers()
        return self.record

    async def write(self, record: LeaseRecord, over: LeaseRecord | None) -> LeaseRecord | None:
        await self._answers()
        if self.record != over:
            return None
        self.writes.append(record.holder)
        self.record = replace(record, version=str(len(self.writes)))
        return self.record

    async def _answers(self) -> None:
        if self.away:
            raise ApiUnreachableError("connection refused")
        await asyncio.sleep(1000 * DURATION if self.hangs else 0.01)


class Replica:
    """One replica whose clock differs by `skew` seconds; it leads in its own task."""

    def __init__(self, name: str, lease: LeaseDouble, skew: float = 0.0) -> None:
        self.leadership = Leadership(
            lease, DURATION, identity=name, clock=lambda: asyncio.get_running_loop().time() + skew
        )
        self.task = asyncio.create_task(self._lead())

    async def _lead(self) -> None:
        await self.leadership.win()
        await self.leadership.keep()

    async def kill(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def within(seconds: float, is_so: Callable[[], bool], *replicas: Replica) -> float:
    """Seconds until the condition holds. Fails if two replicas lead at the same time."""
    began = asyncio.get_running_loop().time()
    while not is_so():
        assert sum(replica.leadership.leads for replica in replicas) <= 1
        assert asyncio.get_running_loop().time() - began < seconds
        await asyncio.sleep(0.05)
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0], ids=["clocks agree", "an hour ahead", "an hour behind"])
def test_a_standby_follows_a_killed_leader(skew: float) -> None:
    async def story() -> None:
        lease = LeaseDouble()
        first = Replica("first", lease)
        await within(5, lambda: first.leadership.leads, first)
        second = Replica("second", lease, skew)
        await asyncio.sleep(10 * DURATION)
        assert first.leadership.leads
        assert not second.leadership.leads
        assert set(lease.writes) == {"first"}
        await first.kill()
        took = await within(2 * DURATION, lambda: second.leadership.leads, first, second)
        assert took > DURATION / 2, "not while the first may still work"
        assert not first.leadership.leads
        assert lease.record is not None
        assert lease.record.transitions == 1
        await second.kill()

    run(story())


def test_a_replica_that_ends_releases_the_lease() -> None:
    async def story() -> None:
        lease = LeaseDouble()
        first = Replica("first", lease)
        await within(5, lambda: first.leadership.leads, first)
        second = Replica("second", lease)
        await asyncio.sleep(1)
        await first.kill()
        await first.leadership.release()
        assert not first.leadership.leads
        await within(DURATION / 3, lambda: second.leadership.leads, first, second)
        await second.leadership.release()
        await first.leadership.release()  # it cannot release a Lease that it does not hold
        assert lease.writes[-1] == ""
        await second.kill()

    run(story())


def test_one_of_many_that_start_together_leads() -> None:
    async def story() -> None:
        lease = LeaseDouble()
        replicas = [Replica(f"r{i}", lease) for i in range(5)]
        await within(5, lambda: any(r.leadership.leads for r in replicas), *replicas)
        await asyncio.sleep(3 * DURATION)
        assert [r.leadership.leads for r in replicas].count(True) == 1
        assert len(set(lease.writes)) == 1
        for replica in replicas:
            await replica.kill()

    run(story())


@pytest.mark.parametrize("outage", ["away", "hangs"])
def test_a_leader_that_cannot_renew_stops_before_another_starts(outage: str) -> None:
    async def story() -> None:
        lease = LeaseDouble()
        first = Replica("first", lease)
        await within(5, lambda: first.leadership.leads, first)
        setattr(lease, outage, True)
        took = await within(DURATION, lambda: not first.leadership.leads, first)
        assert took < DURATION
        with pytest.raises(LeadershipLostError, match="first"):
            await asyncio.wait_for(first.task, DURATION)
        with pytest.raises(LeadershipLostError):
            first.leadership.ensure()

    run(story())


def test_a_short_absence_of_the_api_server_changes_nothing() -> None:
    async def story() -> None:
        lease = LeaseDouble()
        first = Replica("first", lease)
        await within(5, lambda: first.leadership.leads, first)
        for _ in range(5):
            lease.away = True
            await asyncio.sleep(DURATION / 4)
            lease.away = False
            await asyncio.sleep(DURATION)
            assert first.leadership.leads
        await first.kill()

    run(story())


def test_without_a_lease_the_only_replica_leads() -> None:
    async def story() -> None:
        alone = Leadership(None, DURATION)
        await asyncio.wait_for(alone.win(), 1)
        assert alone.leads
        await alone.release()

    run(story())


def with_lease(operators: Operators, namespace: Kubectl) -> Operators:
    """Another operator with the same engine, runner, solver and Lease as `operators`."""
    lease = LeaderElectionSettings(namespace=namespace.namespace, name="partita")
    return replace(operators, settings=operators.settings.model_copy(update={"leader_election": lease}))


def holder(namespace: Kubectl) -> str:
    """The holder of the Lease; empty if there is none."""
    found = namespace.get("lease", "partita") or {"spec": {}}
    return str(found["spec"].get("holderIdentity") or "")


@pytest.mark.apiserver
async def test_the_standby_continues(namespace: Kubectl, operators: Operators) -> None:
    leader, standby = with_lease(operators, namespace), with_lease(operators, namespace)
    async with AsyncExitStack() as running:
        leads = await running.enter_async_context(AsyncExitStack())
        await leads.enter_async_context(leader.running())
        first = await eventually(lambda: holder(namespace), bool)
        await running.enter_async_context(standby.running())
        namespace.apply(pool("fast"), session("traffic"))
        await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=60s")
        assert "partita_leader 1.0" in await leader.metrics()
        waiting = await standby.metrics()
        assert "partita_leader 0.0" in waiting
        passes = re.findall(r"^partita_reconcile_total\{.*\} (\S+)$", waiting, re.MULTILINE)
        assert {float(count) for count in passes} == {0}, "a standby does nothing"

        await leads.aclose()
        await eventually(lambda: holder(namespace), lambda found: found not in ("", first))
        namespace.apply(session("traffic", slo={"latencyMs": 150}), session("other"))
        await namespace.wait("wait", "isess/other", "--for=condition=Ready", "--timeout=60s")
        await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
        )
    assert len(operators.runner.started) == 1
    assert holder(namespace) == "", "it is released at the end"


@pytest.mark.apiserver
async def test_a_lease_that_is_not_renewed_is_taken_and_its_loss_ends_the_operator(
    namespace: Kubectl, operators: Operators
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "partita"},
        "spec": {"holderIdentity": "killed", "leaseDurationSeconds": 3, "leaseTransitions": 4},
    }
    namespace.apply(lease, pool("fast"), session("traffic"))
    replica = with_lease(operators, namespace)

    async def until_it_ends() -> None:
        async with replica.running():
            await namespace.wait("wait", "isess/traffic", "--for=condition=Ready", "--timeout=90s")
            found = namespace.get("lease", "partita")
            assert found is not None
            assert found["spec"]["leaseTransitions"] == 5
            # As if this replica had lost the API server for so long that another one took over.
            taken = '{"spec":{"holderIdentity":"other","leaseDurationSeconds":3600}}'
            namespace("patch", "lease", "partita", "--type=merge", "-p", taken)
            await eventually(lambda: replica.ended, bool)

    with pytest.raises(LeadershipLostError, match="Another replica leads"):
        await until_it_ends()
    assert holder(namespace) == "other", "only its holder releases it"
