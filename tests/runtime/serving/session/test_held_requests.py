"""Requests of a session that has scaled to zero: they are held until there are replicas, and then answered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
import tritonclient.grpc.aio as triton
from tests.runtime.serving.central.local_coordinator import local_coordinator
from tests.runtime.serving.gates import Gate, gated
from tests.runtime.serving.in_process.stand import (
    MONITORING,
    SAMPLE,
    Stand,
    Way,
    behind_uvicorn,
    on_its_own_port,
    post,
    stand,
    until,
)
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application

from partita_api.session.autoscaling import Autoscaling, ScaleToZero
from partita_api.session.frontend import Frontend
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.session.settings import FrontendSettings


def scaling_to_zero(hold_seconds: int = 120, name: str = "one") -> Application:
    zero = ScaleToZero(after_seconds=300, hold_seconds=hold_seconds)
    return application(name).model("only").with_spec(autoscaling=Autoscaling(scale_to_zero=zero))


async def scale_to_zero(running: Stand) -> None:
    """Retire all replicas, as the operator does."""
    for replica in [*running.workers]:
        await running.retire(replica)
    await until(lambda: running.session.holds, "there are no replicas")


@contextlib.asynccontextmanager
async def at_zero(
    app: Application,
    settings: FrontendSettings = FrontendSettings(function_processes=1),  # noqa: B008 - it is frozen
    way: Way = behind_uvicorn,
) -> AsyncIterator[Stand]:
    async with stand(app, settings, way=way) as running:
        await until(lambda: not running.session.holds, "there are replicas")
        await scale_to_zero(running)
        yield running


async def are_held(running: Stand, count: int) -> None:
    await until(lambda: len(running.session.waiting) == count, f"{count} requests are held")


@pytest.mark.parametrize("way", [behind_uvicorn, on_its_own_port])
async def test_the_first_request_is_held_and_answered_when_replicas_are_ready(way: Way) -> None:
    async with at_zero(scaling_to_zero(), way=way) as running:
        assert running.session.ready, "a client that first checks for readiness must be able to scale it from zero"
        first = asyncio.create_task(post(running))
        await are_held(running, 1)
        signals = running.session.signals()
        assert (signals.plan, signals.held, signals.stages[0].ready) == ("plan-1", 1, 0)

        await running.add_replicas(running.app)

        assert (await first)[0] == 200
        assert (await post(running))[0] == 200
        signals = running.session.signals()
        assert (signals.held, signals.bad_rate, signals.outcomes) == (0, 0.0, {"in_time": 2})
        if way is behind_uvicorn:  # a frontend's own port has no measurements
            metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
            assert 'partita_held_requests_total{session="default/one"} 1.0' in metrics
        assert running.session.meter.held_micros > 0


async def test_the_held_time_does_not_count_against_the_slo() -> None:
    """Otherwise it would be late and dropped."""
    async with at_zero(scaling_to_zero().slo(200)) as running:
        request = asyncio.create_task(post(running))
        await are_held(running, 1)
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > began + 0.5, "more than the SLO is over")

        await running.add_replicas(running.app)

        status, text = await request
        assert status == 200, text


async def test_grpc_holds_as_http_does() -> None:
    async with at_zero(scaling_to_zero()) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with triton.InferenceServerClient(str(running.session.addresses.grpc)) as client:
            given = triton.InferInput("input", [1, 2, 2], "FP32")
            given.set_data_from_numpy(SAMPLE)
            request = asyncio.create_task(client.infer("one", [given]))
            await are_held(running, 1)
            with pytest.raises(triton.InferenceServerException, match="Deadline"):
                await client.infer("one", [given], client_timeout=0.5)
            await are_held(running, 1)

            await running.add_replicas(running.app)

            assert (await request).as_numpy("only").shape == (1, 2)
        await endpoint.close()


async def test_many_held_requests_are_admitted_at_the_rate_of_the_replicas() -> None:
    async with at_zero(scaling_to_zero().planned("p", batch_size=2)) as running:
        crowd = [asyncio.create_task(post(running, samples)) for samples in (1, 2, 5) * 20]
        await are_held(running, 60)
        assert running.session.signals().held == 160, "a request of n samples counts as n"

        await running.add_replicas(running.app)

        assert {status for status, _ in await asyncio.gather(*crowd)} == {200}
        assert running.session.signals().outcomes == {"in_time": 160}
        assert running.session.bodies.taken == 0


async def test_without_replicas_in_time_requests_get_a_503() -> None:
    async with at_zero(scaling_to_zero(hold_seconds=1)) as running:
        content, headers = infer_body(SAMPLE)
        answer = await running.client.post("/v2/models/one/infer", content=content, headers=headers)

        assert answer.status_code == 503
        assert answer.json()["error"] == "No replica started within holdSeconds. Try again."
        assert int(answer.headers["retry-after"]) > 0
        assert running.session.signals().held == 1, "it still requests replicas"


async def test_the_request_of_a_client_that_gives_up_is_removed() -> None:
    async with at_zero(scaling_to_zero()) as running:
        content, headers = infer_body(SAMPLE)
        async with httpx.AsyncClient() as impatient:
            url = f"http://{running.url}/v2/models/one/infer"
            with pytest.raises(httpx.ReadTimeout):
                await impatient.post(url, content=content, headers=headers, timeout=0.5)
        await are_held(running, 0)
        assert running.session.bodies.taken == 0
        assert running.session.signals().held == 1, "but it still requests replicas"


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({"max_held_requests": 2}, "2 requests are held already", id="too many"),
        pytest.param(
            {"max_request_bytes": 600, "max_reading_bytes": 600},
            "more than 600 bytes in all are being read or held",
            id="too large",
        ),
    ],
)
async def test_the_number_and_size_of_held_requests_are_limited(settings: dict[str, int], want: str) -> None:
    async with at_zero(
        scaling_to_zero(), FrontendSettings.model_validate({"function_processes": 1, **settings})
    ) as running:
        held = [asyncio.create_task(post(running, samples=16)) for _ in range(2)]
        await are_held(running, 2)
        status, text = await post(running, samples=16)
        await running.add_replicas(running.app)

        assert (status, want in text) == (503, True), text
        assert [status for status, _ in await asyncio.gather(*held)] == [200, 200]


async def test_a_request_whose_replicas_leave_before_it_is_sent_is_held_again() -> None:
    async with stand(scaling_to_zero().deferred().slo(1000)) as running:
        await until(lambda: not running.session.holds, "there are replicas")
        request = asyncio.create_task(post(running))
        await until(lambda: running.session.meter.arrived, "it has arrived")
        await scale_to_zero(running)
        await are_held(running, 1)

        await running.add_replicas(running.app)

        assert (await request)[0] == 200
        assert running.session.signals().outcomes.keys() <= {"in_time", "late"}


async def test_a_request_that_is_answered_in_part_is_not_held_again() -> None:
    """It would begin again, and its client would get outputs twice."""
    gates: list[Gate] = []
    async with stand(scaling_to_zero().model("slow"), wrap=gated(gates)) as running:
        gates[0].open.set()
        tensors = [{"name": name, "datatype": "FP32", "shape": [1, 2, 2], "data": [0] * 4} for name in ("only", "slow")]
        events = {"accept": "text/event-stream"}
        async with running.client.stream(
            "POST", "/v2/models/one/infer", json={"inputs": tensors}, headers=events
        ) as answer:
            parts = answer.aiter_text()
            assert (await anext(parts)).startswith('event: output\ndata: {"name":"only"')
            for replica in [*running.workers]:
                await running.kill(replica)
            end = "".join([part async for part in parts])
        assert end.startswith("event: error\n"), end
        assert ('"status":503' in end, len(running.session.waiting)) == (True, 0)
        gates[1].open.set()


async def test_a_frontend_that_starts_at_zero_replicas_holds_requests() -> None:
    async with at_zero(scaling_to_zero()) as before, stand(before.app, beside=before) as running:
        assert running.session.signals().plan == "plan-1"
        request = asyncio.create_task(post(running))
        await are_held(running, 1)
        await before.add_replicas(before.app)
        assert (await request)[0] == 200


async def test_a_new_plan_answers_requests_that_were_held_for_the_old_one() -> None:
    async with at_zero(scaling_to_zero()) as running:
        request = asyncio.create_task(post(running))
        await are_held(running, 1)
        new = running.app.planned("plan-2", batch_size=4)
        running.session.reconfigure(new.epoch)
        await running.add_replicas(new)
        assert (await request)[0] == 200
        assert running.session.signals().plan == "plan-2"


async def test_a_changed_session_does_not_answer_requests_that_were_held_before() -> None:
    async with at_zero(scaling_to_zero()) as running:
        request = asyncio.create_task(post(running))
        await are_held(running, 1)
        new = scaling_to_zero().model("another").planned("plan-2")
        running.session.reconfigure(new.epoch)
        await running.add_replicas(new)
        status, text = await request
        assert (status, "the session changed while the request was held" in text) == (503, True)


async def test_each_frontend_holds_its_requests_and_reports_for_all() -> None:
    app = scaling_to_zero().with_spec(frontend=Frontend(replicas=2))
    async with (
        local_coordinator(app) as coordinator,
        stand(app, coordinator=coordinator) as one,
        stand(app, coordinator=coordinator, beside=one) as other,
    ):
        for running in (one, other):
            await until(lambda r=running: not r.session.holds, "there are replicas")
        await scale_to_zero(one)
        await until(lambda: other.session.holds, "the other one knows")
        requests = [asyncio.create_task(post(running)) for running in (one, other, other)]
        for running in (one, other):
            await until(lambda r=running: r.session.signals().held == 3, "both say that three are held")

        await one.add_replicas(app)

        assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 3
        await until(lambda: one.session.total.held == other.session.total.held == 3, "both have counted them")
        assert one.session.signals().bad_rate == 0.0


async def test_idle_seconds_are_the_time_without_requests() -> None:
    async with stand(scaling_to_zero()) as running:
        clock = asyncio.get_running_loop().time
        await until(lambda: running.session.signals().idle_seconds > 0.5, "no request has come for a while")
        sent = clock()
        await post(running)
        await until(lambda: running.session.signals().idle_seconds <= clock() - sent, "the request is noticed")
