"""Frontends of one session that share its replicas: one coordinator decides for both. Each process may be killed."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

import pytest
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.central.local_coordinator import LocalCoordinator, local_coordinator
from tests.runtime.serving.gates import Gate, gated
from tests.runtime.serving.in_process.stand import MONITORING, Stand, post, stand, until
from tests.runtime.serving.plans import Application, application

from partita_api.session.frontend import Frontend
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.serving.central import coordinator_link
from partita_runtime.serving.central.messages import (
    COORDINATOR_DIALECT,
    CoordinatorMessage,
    FrontendEvents,
    Register,
    Registered,
    RegisterReporter,
    SubRequestArrived,
    WorkerJoined,
)
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.transport.streams import MessageStream, Receiver, connect
from partita_runtime.serving.transport.wire import Array

FAST_SWITCH = FrontendSettings(function_processes=1, switch_patience_seconds=0.5)


def shared(name: str = "one") -> Application:
    """A model in one stage on one replica, behind two frontends."""
    return application(name).model("only").with_spec(frontend=Frontend(replicas=2))


@contextlib.asynccontextmanager
async def two_frontends(
    app: Application, wrap: Callable[[BuiltExecutor], BuiltExecutor] = lambda built: built
) -> AsyncIterator[tuple[LocalCoordinator, Stand, Stand]]:
    async with (
        local_coordinator(app) as coordinator,
        stand(app, FAST_SWITCH, wrap, coordinator=coordinator) as one,
        stand(app, FAST_SWITCH, coordinator=coordinator, beside=one) as other,
    ):
        yield coordinator, one, other


def outcomes(running: Stand) -> dict[str, int]:
    return dict(running.session.signals().outcomes)


async def test_both_answer_and_each_reports_for_both() -> None:
    async with two_frontends(shared()) as (_, one, other):
        answers = await asyncio.gather(*(post(running) for running in (one, other) for _ in range(10)))
        assert [status for status, _ in answers] == [200] * 20, answers
        for running in (one, other):
            await until(lambda r=running: outcomes(r) == {"in_time": 20}, "all requests are counted")
            signals = running.session.signals()
            assert sum(size * count for size, count in signals.batch_sizes.items()) == 20
            assert [(stage.ready, stage.bad_rate) for stage in signals.stages] == [(1, 0.0)]
            metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
            assert 'partita_requests_total{outcome="in_time",session="default/one"} 20.0' in metrics


async def test_both_use_pipelines_of_several_stages() -> None:
    """What is reserved for one frontend's batches is in order with what is reserved for the other's."""
    app = dataclasses.replace(shared("deep"), stages=3, replicas=2).planned("p", batch_size=1)
    async with two_frontends(app) as (_, one, other):
        answers = await asyncio.gather(*(post(running) for running in (one, other) for _ in range(30)))
        assert [status for status, _ in answers] == [200] * 60, answers
        await until(lambda: outcomes(one) == {"in_time": 60}, "all requests are counted")


async def test_the_coordinator_restarts_with_pending_requests() -> None:
    gates: list[Gate] = []
    app = shared().planned("p", batch_size=1)
    async with two_frontends(app, gated(gates)) as (coordinator, one, other):
        early = asyncio.create_task(post(one))
        await until(lambda: gates[0].runs, "a batch runs")
        await coordinator.kill()
        await until(lambda: not one.session.ready and not other.session.ready, "the frontends have noticed")
        late = [asyncio.create_task(post(running)) for running in (one, other)]
        await until(lambda: other.session.meter.arrived, "requests wait")
        assert "is away" in other.session.signals().message
        gates[0].open.set()
        assert (await early)[0] == 200, "dispatched batches do not need a coordinator"
        assert gates[0].runs == 1
        await coordinator.start()
        assert [(await answer)[0] for answer in late] == [200, 200]
        assert gates[0].runs == 3
        await until(lambda: one.session.ready and other.session.ready, "both are ready again")


async def test_without_a_coordinator_requests_wait_for_the_slo_at_most() -> None:
    async with two_frontends(shared().slo(300)) as (coordinator, one, other):
        await coordinator.kill()
        for running in (one, other):
            status, message = await post(running)
            assert (status, "is away" in message) == (503, True), message
        assert (await one.client.get("/v2/health/ready")).status_code == 503


async def test_frontends_disconnect_from_a_coordinator_that_hangs() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async with two_frontends(shared().slo(300)) as (coordinator, one, _):
        address = coordinator.address
        await coordinator.kill()
        async with await asyncio.start_server(hang, "127.0.0.1", address.port):
            coordinator.lead_to(address)
            assert (await post(one))[0] == 503
        await coordinator.start()
        await until(lambda: one.session.ready, "the frontend has found the new coordinator")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await post(one))[0] != 200:
                pass


async def test_frontends_leave_a_coordinator_that_the_others_do_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frontend may connect to the second coordinator while the first one is only slow."""
    monkeypatch.setattr(coordinator_link, "_CHECK_SECONDS", 0.1)
    app = shared()
    async with local_coordinator(app) as used, two_frontends(app) as (left, one, other):
        left.lead_to(used.address, active=True)
        await until(lambda: left.running.deserted, "no frontend uses the first coordinator")
        await until(lambda: [len(plan) for plan in used.running.plans] == [2], "both use the second one")
        for running in (one, other):
            await until(lambda running=running: running.session.ready, "it serves")
            assert (await post(running))[0] == 200


async def test_a_coordinator_that_takes_over_again_counts_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_link, "_CHECK_SECONDS", 0.1)
    app = shared()
    async with local_coordinator(app) as second, two_frontends(app) as (first, one, other):
        address, servers = first.address, (first.running, second.running)

        async def answered(requests: int) -> None:
            for _ in range(requests):
                assert (await post(one))[0] == 200
            # The other frontend knows of them only by the coordinator.
            await until(lambda: other.session.total.outcomes.total() == requests, "the coordinator has counted them")

        await answered(5)
        first.lead_to(second.address, active=True)
        await until(lambda: servers[0].deserted and one.session.ready, "the second coordinator is used")
        await until(lambda: other.session.total.outcomes.total() == 0, "the second coordinator reports")
        first.lead_to(address, active=True)
        await until(lambda: servers[1].deserted and one.session.ready, "the first coordinator is used")
        await answered(2)


async def test_a_frontend_is_lost_and_the_other_continues() -> None:
    gates: list[Gate] = []
    app = shared().planned("p", batch_size=1)
    async with two_frontends(app, gated(gates)) as (coordinator, one, other):
        lost = asyncio.create_task(post(one))
        await until(lambda: gates[0].runs, "its batch runs")
        answer = asyncio.create_task(post(other))
        await until(lambda: other.session.meter.arrived, "the other one has work, too")
        one.session.close()
        gates[0].open.set()
        assert (await answer)[0] == 200
        (plan,) = coordinator.running.plans
        await until(lambda: len(plan) == 1, "the coordinator has forgotten the one that died")
        lost.cancel()


async def test_the_old_plan_is_reported_while_one_frontend_uses_it() -> None:
    app = shared()
    after = app.planned("plan-2", batch_size=4)
    async with two_frontends(app) as (_, one, other):
        one.session.reconfigure(after.epoch)
        await one.add_replicas(after)
        await until(lambda: one.session.serving and one.session.serving.epoch == after.epoch, "one has moved on")
        for running in (one, other):
            await until(lambda r=running: r.session.signals().next_plan == "plan-2", "both know what is coming")
            assert running.session.signals().plan == "plan-1"
        assert [(await post(running))[0] for running in (one, other)] == [200, 200]
        other.session.reconfigure(after.epoch)
        for running in (one, other):
            await running.serves("plan-2")
            await until(lambda r=running: r.session.signals().next_plan is None, "nothing more is coming")
        assert [(await post(running))[0] for running in (one, other)] == [200, 200]


async def test_one_frontend_becomes_two_and_one_again() -> None:
    alone = application("one").model("only")
    async with local_coordinator(alone) as coordinator, stand(alone, FAST_SWITCH, coordinator=coordinator) as one:
        one.session.reconfigure(shared().epoch)
        await until(lambda: one.session.serving and one.session.serving.epoch == shared().epoch, "it shares")
        async with stand(shared(), FAST_SWITCH, coordinator=coordinator, beside=one) as other:
            assert [(await post(running))[0] for running in (one, other)] == [200, 200]
        one.session.reconfigure(alone.epoch)
        await until(lambda: one.session.serving and one.session.serving.epoch == alone.epoch, "it is alone")
        await coordinator.kill()
        assert (await post(one))[0] == 200


@pytest.mark.parametrize("before", [1, 2])
async def test_batches_from_before_a_change_keep_their_replica_busy_after_it(before: int) -> None:
    """While a batch of one minute runs, a request whose client waits for less than two minutes is refused, not sent."""
    gates: list[Gate] = []
    slow = application("one").model("only", beta_micros=60_000_000).slo(300_000).planned("p", batch_size=1)
    first, then = (slow.with_spec(frontend=Frontend(replicas=count)) for count in (before, 3 - before))
    async with (
        local_coordinator(slow) as coordinator,
        stand(first, FAST_SWITCH, gated(gates, "over"), coordinator=coordinator) as one,
    ):
        early = asyncio.create_task(post(one))
        await until(lambda: gates[0].runs, "a batch runs")
        one.session.reconfigure(then.epoch)
        await until(lambda: one.session.serving and one.session.serving.epoch == then.epoch, "it has changed")
        tensor = {"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [0, 0, 0, 0]}
        hurried = {"parameters": {"timeout": 90_000_000}, "inputs": [tensor]}
        answer = await one.client.post("/v2/models/one/infer", json=hurried)
        gates[0].open.set()
        assert answer.status_code == 504
        assert (await early)[0] == 500
        assert gates[0].runs == 2, "the early one runs twice"


class Peer(Receiver[CoordinatorMessage]):
    """A peer of a coordinator."""

    def __init__(self) -> None:
        self.messages: list[CoordinatorMessage] = []
        self.is_lost = False

    def admit(self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage) -> None: ...

    def received(
        self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage, tensors: list[Array]
    ) -> None:
        self.messages.append(message)

    def lost(self, stream: MessageStream[CoordinatorMessage]) -> None:
        self.is_lost = True


PLAN = shared().epoch.plan
UNPLANNED = WorkerJoined("only", "p9", 0, "w", "n")
ARRIVED = SubRequestArrived(1, "only", deadline=5, at=0, call=1)
ARRIVED_ELSEWHERE = SubRequestArrived(1, "another", deadline=5, at=0, call=1)
REGISTER = Register(frontend="s", plan=PLAN, next_batch=0)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([FrontendEvents(sent=0)], id="without a hello"),
        pytest.param([REGISTER, REGISTER], id="two hellos"),
        pytest.param([RegisterReporter(session="default/another")], id="another session"),
        pytest.param(
            [REGISTER, FrontendEvents(sent=0, arrived=(ARRIVED_ELSEWHERE,))], id="a module that the plan lacks"
        ),
        pytest.param(
            [REGISTER, FrontendEvents(sent=0, workers_joined=(UNPLANNED,))],
            id="a stage that is not in the plan",
        ),
        pytest.param([REGISTER, FrontendEvents(sent=0, arrived=(ARRIVED, ARRIVED))], id="a request twice"),
        pytest.param([REGISTER, Registered()], id="a message that is not for coordinators"),
    ],
)
async def test_the_coordinator_disconnects_from_misbehaving_peers(messages: list[CoordinatorMessage]) -> None:
    async with local_coordinator(shared()) as coordinator:
        address, well_behaved, peer = coordinator.address, Peer(), Peer()
        other = await connect(address, COORDINATOR_DIALECT, well_behaved)
        other.send(REGISTER.model_copy(update={"frontend": "other"}))
        stream = await connect(address, COORDINATOR_DIALECT, peer)
        for message in messages:
            stream.send(message)
        await until(lambda: peer.is_lost, "the coordinator closes the stream")
        await until(lambda: well_behaved.messages, "others are registered as before")
        assert [len(plan) for plan in coordinator.running.plans] == [1]
