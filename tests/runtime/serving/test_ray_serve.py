"""The data plane on a real Ray cluster, deployed as the operator deploys it, reached through Serve's HTTP proxy."""

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from tests.operator.dev_fixtures import RayClusterFactory
from tests.runtime.serving.collector import Collector, collector
from tests.runtime.serving.deployment import Deployment
from tests.runtime.serving.load import Load, infer_body, steady_load
from tests.runtime.serving.models import convolutional
from tests.runtime.serving.plans import EMULATED, REAL, Application, application, detector_with_crops

from partita_api.inferencesession import Frontend
from partita_operator.dev.ray_commands import RayClassNode, RayClusterConfig
from partita_runtime.scheduling.events import StageRef

pytestmark = pytest.mark.ray

TRAFFIC = detector_with_crops().slo(20_000).with_spec(frontend=Frontend(grpc_port=0))
NETWORK = replace(
    application("real").model(
        "network", input=(3, 16, 16), outputs=((10,),), entrypoint="tests.runtime.serving.models:convolutional"
    ),
    stages=2,
    slo_ms=20_000,
)
STEADY = replace(application("steady").model("only"), slo_ms=20_000, replicas=2)


@pytest.fixture(scope="module")
def traces() -> Iterator[Collector]:
    """Where the frontends send their traces."""
    with collector() as taking:
        yield taking


@pytest.fixture(scope="module")
def deployment(start_ray: RayClusterFactory, traces: Collector) -> Iterator[Deployment]:
    tracing = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": traces.url,
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    nodes = (RayClassNode(EMULATED, slots=8), RayClassNode(REAL, slots=2))
    cluster = start_ray(RayClusterConfig(nodes=nodes, environment=tracing))
    deployment = Deployment(cluster)
    deployment.deploy(TRAFFIC, NETWORK, STEADY)
    yield deployment
    deployment.remove(lambda _: True)
    deployment.until(lambda: not deployment.replicas(), "everything is taken down")


def infer(deployment: Deployment, app: Application, samples: np.ndarray) -> triton.InferResult:
    client = triton.InferenceServerClient(deployment.url(app))
    given = triton.InferInput("input", samples.shape, "FP32")
    given.set_data_from_numpy(samples)
    try:
        return client.infer(app.name, [given])
    finally:
        client.close()


class Loading:
    """Steady load from another thread, until told to stop."""

    def __init__(self, deployment: Deployment, app: Application, rate: float) -> None:
        self._stop = False
        self._thread = ThreadPoolExecutor(1)
        url = f"http://{deployment.url(app)}/v2/models/{app.name}/infer"
        self._done: Future[Load] = self._thread.submit(
            lambda: asyncio.run(
                steady_load(url, np.zeros((1, 2, 2), np.float32), rate, lambda _: self._stop, most_seconds=150)
            )
        )

    def stop(self) -> Load:
        self._stop = True
        return self._done.result()


def ready(deployment: Deployment, app: Application) -> list[int]:
    return [stage["ready"] for stage in deployment.signals(app)["stages"]]


def has_ready(deployment: Deployment, app: Application, count: int) -> bool:
    return ready(deployment, app) == [count]


def test_tritonclient_through_serve(deployment: Deployment) -> None:
    client = triton.InferenceServerClient(deployment.url(TRAFFIC))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("traffic")
    assert [output["name"] for output in client.get_model_metadata("traffic")["outputs"]] == [
        "classifier",
        "classifier.index",
    ]
    client.close()
    samples = np.zeros((3, 3, 4), np.float32)
    samples[:, 0, 0] = (2, 0, 3)
    result = infer(deployment, TRAFFIC, samples)
    np.testing.assert_array_equal(result.as_numpy("classifier.index"), [0, 0, 2, 2, 2])
    assert result.as_numpy("classifier").shape == (5, 5)


def test_tritonclient_by_grpc_where_the_frontend_says(deployment: Deployment) -> None:
    deployment.until(lambda: deployment.signals(TRAFFIC)["grpcAddress"], "gRPC is listened for")
    client = triton_grpc.InferenceServerClient(deployment.signals(TRAFFIC)["grpcAddress"])
    given = triton_grpc.InferInput("input", [2, 3, 4], "FP32")
    given.set_data_from_numpy(np.ones((2, 3, 4), np.float32))
    result = client.infer("traffic", [given], request_id="seven")
    assert result.get_response().id == "seven"
    np.testing.assert_array_equal(result.as_numpy("classifier.index"), [0, 1])
    client.close()
    assert deployment.signals(STEADY)["grpcAddress"] is None


def test_a_model_in_two_stages_answers_as_the_whole_model(deployment: Deployment) -> None:
    samples = np.random.default_rng(5).standard_normal((4, 3, 16, 16), np.float32)
    with torch.no_grad():
        want = convolutional()(torch.from_numpy(samples)).numpy()
    got = infer(deployment, NETWORK, samples).as_numpy("network")
    np.testing.assert_allclose(got, want, atol=2e-2)  # the feature map in between is in half precision
    np.testing.assert_array_equal(got.argmax(1), want.argmax(1))


def test_a_request_that_its_client_traces_is_followed_through_all_stages(
    deployment: Deployment, traces: Collector
) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    content, headers = infer_body(np.zeros((1, 3, 16, 16), np.float32))
    url = f"http://{deployment.url(NETWORK)}/v2/models/{NETWORK.name}/infer"
    answer = httpx.post(url, content=content, headers={**headers, "traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert answer.is_success, answer.text
    want = {"infer", "model network", "queue", "batch", "network", "wait", "run"}
    deployment.until(lambda: traces.names_in(trace) == want, "the whole trace is exported")
    ran = [span for span in traces.spans if span.trace_id.hex() == trace and span.name == "run"]
    assert {a.value.int_value for span in ran for a in span.attributes if a.key == "partita.stage"} == {0, 1}


def test_large_requests_go_through(deployment: Deployment) -> None:
    samples = np.random.default_rng(6).standard_normal((64, 3, 16, 16), np.float32)
    assert infer(deployment, NETWORK, samples).as_numpy("network").shape == (64, 10)


def test_a_killed_replica_loses_no_request_and_is_replaced(deployment: Deployment) -> None:
    loading = Loading(deployment, STEADY, rate=20)
    deployment.until(lambda: deployment.signals(STEADY)["goodput"] > 5, "load is on")
    victim = next(r for r in deployment.replicas() if "steady.plan-1.only" in r["application"])
    os.kill(victim["pid"], signal.SIGKILL)
    deployment.until(lambda: ready(deployment, STEADY) == [1], "the frontend has noticed")
    deployment.until(lambda: ready(deployment, STEADY) == [2], "the replica is replaced")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors


def test_scaling_up_and_down_loses_no_request(deployment: Deployment) -> None:
    loading = Loading(deployment, STEADY, rate=20)
    stage = StageRef("only", "p0", 0)
    for count in (4, 1, 2):
        deployment.apply_stages(STEADY, {stage: count})
        deployment.until(partial(has_ready, deployment, STEADY, count), f"{count} replicas take batches")
    deployment.until(lambda: running(deployment, "steady.plan-1.only") == 2, "the others are gone")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors


def test_a_new_plan_takes_over_without_a_failure(deployment: Deployment) -> None:
    after = STEADY.planned("plan-2", stages=2, replicas=1, batch_size=4)
    loading = Loading(deployment, STEADY, rate=20)
    deployment.until(lambda: deployment.signals(STEADY)["goodput"] > 5, "load is on")
    deployment.apply_stages(after)
    deployment.apply_frontend(after)
    deployment.until(lambda: deployment.signals(after)["plan"] == "plan-2", "plan-2 serves")
    deployment.remove(lambda name: ".plan-1." in name and ".steady." in name)
    deployment.until(lambda: not running(deployment, "steady.plan-1.only"), "the old plan's replicas are gone")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
    assert ready(deployment, after) == [1, 1]


def running(deployment: Deployment, name: str) -> int:
    return sum(name in replica["application"] for replica in deployment.replicas())


def test_the_frontend_survives_its_directory(deployment: Deployment) -> None:
    before = actor(deployment)
    os.kill(before["pid"], signal.SIGKILL)
    deployment.until(lambda: actor(deployment)["pid"] not in (0, before["pid"]), "the directory is restarted")
    samples = np.zeros((1, 3, 4), np.float32)
    assert infer(deployment, TRAFFIC, samples).as_numpy("classifier").shape == (0, 5)
    assert ready(deployment, TRAFFIC) == [1, 1]


def actor(deployment: Deployment) -> dict[str, Any]:
    answer = deployment.cluster.get(
        "/api/v0/actors?detail=1&filter_keys=name&filter_predicates=%3D&filter_values=partita-directory"
    )
    (found,) = answer["data"]["result"]["result"]
    return dict(found)


def test_a_killed_frontend_comes_back(deployment: Deployment) -> None:
    def frontends() -> set[int | None]:
        return {r.get("pid") for r in deployment.replicas() if r["application"].endswith(".traffic.frontend")}

    (victim,) = frontends()
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    deployment.until(lambda: frontends() - {victim, None}, "there is another one")
    deployment.until(lambda: deployment.ready(TRAFFIC), "it serves again")
    samples = np.ones((1, 3, 4), np.float32)
    assert infer(deployment, TRAFFIC, samples).as_numpy("classifier").shape == (1, 5)
