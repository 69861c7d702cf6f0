"""A session with transport ActorCalls, on a real Ray cluster.

Runs before `test_ray_serve_failures.py`, which removes a node of the cluster.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.on_ray.deployment import OPTIONS, Deployment, Loading
from tests.runtime.serving.plans import application
from tests.runtime.serving.sessions import SHARED, STEADY

from partita_api.session.frontend import Frontend
from partita_runtime.serving.coordinator_actors import coordinator_name
from partita_runtime.serving.transport.kind import TransportKind

pytestmark = pytest.mark.ray

CALLED = replace(application("called").model("only", input=(200, 200)), stages=2, replicas=2, slo_ms=20_000).with_spec(
    frontend=Frontend(replicas=2)
)
"""Two frontends, with a coordinator, and two stages. A sample is too large for one of Ray's messages."""


@pytest.fixture(scope="module")
def called(deployment: Deployment) -> Iterator[Deployment]:
    deployment.deploy(CALLED, options=OPTIONS.model_copy(update={"transport": TransportKind.ACTOR_CALLS}))
    yield deployment
    deployment.remove(lambda name: ".called." in name)


def stages(deployment: Deployment, name: str) -> list[dict[str, Any]]:
    return [r for r in deployment.replicas() if f".{name}.plan-" in r["application"]]


def listening(pid: int) -> int:
    """The number of TCP ports on which a process listens."""
    own = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in own for row in rows)


def test_two_stages_answer_without_ports(called: Deployment) -> None:
    client = triton.InferenceServerClient(called.url(CALLED))
    samples = np.zeros((3, 200, 200), np.float32)
    samples[:, 0, 0] = (1, 0, 1)
    given = triton.InferInput("input", samples.shape, "FP32")
    given.set_data_from_numpy(samples)

    def answers() -> bool:
        """Not immediately: the called frontend may not have found all replicas yet."""
        try:
            return client.infer("called", [given]).as_numpy("only").shape == (3, 2)
        except triton.InferenceServerException:
            return False

    called.until(answers, "a request is answered")
    client.close()
    coordinators = [called.actor(coordinator_name(app.session.key, 0))["pid"] for app in (SHARED, CALLED)]
    called.until(
        lambda: listening(coordinators[1]) == listening(coordinators[0]) - 1, "the coordinator has no port of its own"
    )

    def all_started() -> bool:
        """One replica of each stage is enough to serve; starting replicas have no pid yet."""
        return all(stage.get("pid") for name in (STEADY.name, CALLED.name) for stage in stages(called, name))

    called.until(all_started, "all replicas have started")
    (by_streams, *_), by_calls = stages(called, STEADY.name), stages(called, CALLED.name)

    def no_ports() -> bool:
        return [listening(stage["pid"]) for stage in by_calls] == [listening(by_streams["pid"]) - 1] * 4

    called.until(no_ports, "no stage has a port")


def test_a_killed_replica_with_actor_calls_loses_no_request_and_is_replaced(called: Deployment) -> None:
    loading = Loading(called, CALLED, rate=20)
    called.until(lambda: loading.sent() >= 20, "load is on")
    victim = stages(called, CALLED.name)[-1]["pid"]
    os.kill(victim, signal.SIGKILL)

    def is_replaced() -> bool:
        there = {stage.get("pid") for stage in stages(called, CALLED.name)}
        return victim not in there and called.ready_replicas(CALLED) == [2, 2]

    called.until(is_replaced, "the replica is replaced")
    load = loading.stop()
    assert load.statuses == {200: load.sent}, load.errors
