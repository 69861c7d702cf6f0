"""The data plane on a real Ray cluster, deployed like by the operator, reached through Serve's HTTP proxy."""

from dataclasses import replace
from functools import partial

import httpx
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.models import convolutional
from tests.runtime.serving.on_ray.deployment import Deployment, Loading
from tests.runtime.serving.plans import Application
from tests.runtime.serving.sessions import EARLY, NETWORK, STEADY, TRAFFIC
from tests.runtime.serving.telemetry.collector import Collector
from tritonclient.utils import InferenceServerException

from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest
from partita_runtime.serving.deploy.applications import frontend_name

pytestmark = pytest.mark.ray


def infer(deployment: Deployment, app: Application, samples: np.ndarray) -> triton.InferResult:
    client = triton.InferenceServerClient(deployment.url(app))
    given = triton.InferInput("input", samples.shape, "FP32")
    given.set_data_from_numpy(samples)
    try:
        return client.infer(app.name, [given])
    finally:
        client.close()


def has_ready(deployment: Deployment, app: Application, count: int) -> bool:
    return deployment.ready_replicas(app) == [count]


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


def test_tritonclient_by_grpc_at_the_reported_address(deployment: Deployment) -> None:
    deployment.until(lambda: deployment.signals(TRAFFIC)["grpcAddress"], "gRPC is listened for")
    client = triton_grpc.InferenceServerClient(deployment.signals(TRAFFIC)["grpcAddress"])
    given = triton_grpc.InferInput("input", [2, 3, 4], "FP32")
    given.set_data_from_numpy(np.ones((2, 3, 4), np.float32))
    result = client.infer("traffic", [given], request_id="seven")
    assert result.get_response().id == "seven"
    np.testing.assert_array_equal(result.as_numpy("classifier.index"), [0, 1])
    client.close()
    assert deployment.signals(STEADY)["grpcAddress"] is None


def test_tritonclient_without_the_proxy_at_the_reported_address(deployment: Deployment) -> None:
    deployment.until(lambda: deployment.signals(TRAFFIC)["httpAddress"], "HTTP is listened for")
    address = deployment.signals(TRAFFIC)["httpAddress"]
    client = triton.InferenceServerClient(address)
    given = triton.InferInput("input", [2, 3, 4], "FP32")
    given.set_data_from_numpy(np.ones((2, 3, 4), np.float32))
    np.testing.assert_array_equal(client.infer("traffic", [given]).as_numpy("classifier.index"), [0, 1])
    client.close()
    direct = httpx.get(f"http://{address}/{TRAFFIC.session.key}/v2/models/traffic").json()
    assert direct == httpx.get(f"http://{deployment.url(TRAFFIC)}/v2/models/traffic").json()
    assert deployment.signals(STEADY)["httpAddress"] is None


def test_a_model_in_two_stages_answers_like_the_whole_model(deployment: Deployment) -> None:
    samples = np.random.default_rng(5).standard_normal((4, 3, 16, 16), np.float32)
    with torch.no_grad():
        want = convolutional()(torch.from_numpy(samples)).numpy()
    got = infer(deployment, NETWORK, samples).as_numpy("network")
    np.testing.assert_allclose(got, want, atol=2e-2)  # the feature map in between is in half precision
    np.testing.assert_array_equal(got.argmax(1), want.argmax(1))


def test_a_request_traced_by_its_client_has_spans_of_all_stages(deployment: Deployment, traces: Collector) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    content, headers = infer_body(np.zeros((1, 3, 16, 16), np.float32))
    url = f"http://{deployment.url(NETWORK)}/v2/models/{NETWORK.name}/infer"
    answer = httpx.post(url, content=content, headers={**headers, "traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert answer.is_success, answer.text
    want = {"infer", "model network", "queue", "batch", "network", "wait", "run"}
    deployment.until(lambda: traces.names_in(trace) == want, "the whole trace is exported")
    ran = [span for span in traces.spans if span.trace_id.hex() == trace and span.name == "run"]
    assert {a.value.int_value for span in ran for a in span.attributes if a.key == "partita.stage"} == {0, 1}


def test_clients_change_in_place_at_every_entrance(deployment: Deployment) -> None:
    """Serve gives the frontend its other `user_config`, and starts no other process."""
    addresses = ("grpcAddress", "httpAddress")
    deployment.until(
        lambda: all(deployment.signals(TRAFFIC)[name] for name in addresses), "both ports are listened for"
    )
    before = frontend(deployment, TRAFFIC)
    try:
        for key in ("f3c1a0b9d2e84f6a", "0123456789abcdef"):
            digest = key_digest("uid", key.encode())
            deployment.apply_frontend(replace(TRAFFIC, clients=AllowedClients(salt="uid", api_keys=(digest,))))
            deployment.until(lambda key=key: answered(deployment, TRAFFIC, key) == [200, 200, "OK"], "the key counts")
            assert answered(deployment, TRAFFIC, "other") == [401, 401, "UNAUTHENTICATED"]
            assert deployment.ready(TRAFFIC)
            assert deployment.signals(TRAFFIC)["plan"] == TRAFFIC.plan_name
    finally:
        deployment.apply_frontend(TRAFFIC)
        deployment.until(lambda: answered(deployment, TRAFFIC, "other") == [200, 200, "OK"], "everybody is answered")
    assert frontend(deployment, TRAFFIC) == before


def answered(deployment: Deployment, app: Application, key: str) -> list[int | str]:
    """Status of a request for metadata behind Serve's proxy, on the frontend's own port, and by gRPC."""
    signals, sent = deployment.signals(app), {"authorization": f"Bearer {key}"}
    urls = (deployment.url(app), signals["httpAddress"])
    statuses: list[int | str] = [
        httpx.get(f"http://{url}/v2/models/{app.name}", headers=sent).status_code for url in urls
    ]
    client = triton_grpc.InferenceServerClient(signals["grpcAddress"])
    try:
        client.get_model_metadata(app.name, headers=sent)
        return [*statuses, "OK"]
    except InferenceServerException as error:
        return [*statuses, str(error.status()).removeprefix("StatusCode.")]
    finally:
        client.close()


def frontend(deployment: Deployment, app: Application) -> str:
    """The actor of the session's frontend."""
    (found,) = (r for r in deployment.replicas() if r["application"] == frontend_name(app.session.key))
    return str(found["actor_id"])


def test_large_requests_are_answered(deployment: Deployment) -> None:
    samples = np.random.default_rng(6).standard_normal((64, 3, 16, 16), np.float32)
    assert infer(deployment, NETWORK, samples).as_numpy("network").shape == (64, 10)


def test_outputs_pass_the_proxy_as_soon_as_they_are_known(deployment: Deployment) -> None:
    """The proxy collects no events, and says when a client leaves in the middle."""
    deployment.deploy(EARLY)
    tensors = [{"name": name, "datatype": "FP32", "shape": [1, 2, 2], "data": [0] * 4} for name in ("quick", "slow")]
    url, events = f"http://{deployment.url(EARLY)}/v2/models/early/infer", {"accept": "text/event-stream"}

    with httpx.stream("POST", url, json={"inputs": tensors}, headers=events, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        first, *others = answer.iter_text()
    kinds = [[line for line in part.splitlines() if line.startswith("event: ")] for part in (first, "".join(others))]
    assert kinds == [["event: output"], ["event: output", "event: answer"]]

    def knows_who_leaves() -> bool:
        with httpx.stream("POST", url, json={"inputs": tensors}, headers=events, timeout=60) as answer:
            next(answer.iter_text())
        return "cancelled" in deployment.signals(EARLY).get("outcomes", {})

    deployment.until(knows_who_leaves, "the frontend knows which clients leave")
    deployment.remove(lambda name: "early" in name)


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
    assert deployment.ready_replicas(after) == [1, 1]


def running(deployment: Deployment, name: str) -> int:
    return sum(name in replica["application"] for replica in deployment.replicas())
