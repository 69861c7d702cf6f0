"""Profiling runs as Jobs of a real API server; their pods run on a double of a node."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from tests.builders import pool
from tests.operator.kubelet_double import KubeletDouble
from tests.operator.profiling.requests import IMPORTS, is_over, quick, request, until
from tests.patience import PATIENCE_SECONDS

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.resources import JobResource, NamespaceResource, PodResource
from partita_operator.ports import ProfileRun, RunPhase
from partita_operator.profiling.kubernetes_job import KubernetesJobRunner, unfinished_run
from partita_operator.settings.model import ProfilingSettings

T4 = pool("t4").build()


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeletDouble]:
    with KubeletDouble(
        control_plane,
        f"t4-{uuid4().hex[:8]}",
        work_dir=tmp_path_factory.mktemp("node"),
        labels={"partita.dev/pool": "t4"},
        capacity={"nvidia.com/gpu": 2},
        environment={"PYTHONPATH": IMPORTS},
    ) as kubelet:
        yield kubelet


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(await load_config(control_plane.kubeconfig)) as made:
        yield made


@pytest.fixture
async def namespace(client: KubernetesClient) -> AsyncIterator[str]:
    name = f"profiling-{uuid4().hex[:8]}"
    await client.create(NamespaceResource, {"metadata": {"name": name}})
    yield name
    await client.delete(NamespaceResource, name)


def runner(client: KubernetesClient, timeout_seconds: int = 120) -> KubernetesJobRunner:
    return KubernetesJobRunner(client, "partita-profiler:test", ProfilingSettings(timeout_seconds=timeout_seconds))


@pytest.mark.apiserver
async def test_a_run_returns_its_profile_and_is_removed(
    client: KubernetesClient, namespace: str, node: KubeletDouble
) -> None:
    asked, runs = quick("t4"), runner(client)
    assert (await runs.observe(namespace, asked.key, 1)).phase is RunPhase.ABSENT
    await runs.start(namespace, asked, T4, 1)
    await runs.start(namespace, asked, T4, 1)
    run = await until(lambda: runs.observe(namespace, asked.key, 1), is_over)
    assert run.phase is RunPhase.SUCCEEDED, run.message
    assert run.profile is not None
    assert run.profile.request == asked
    (pod,) = await client.list(PodResource, namespace)
    assert pod["spec"]["nodeName"] == node.name
    await runs.remove(namespace, asked.key, 1)
    await runs.remove(namespace, asked.key, 1)
    assert (await runs.observe(namespace, asked.key, 1)).phase is RunPhase.ABSENT
    await nothing_is_left(client, namespace)


async def nothing_is_left(client: KubernetesClient, namespace: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [
        *await client.list(JobResource, namespace),
        *await client.list(PodResource, namespace),
    ]:
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.25)


@pytest.mark.apiserver
@pytest.mark.usefixtures("node")
async def test_a_failed_run_reports_its_cause_and_can_start_again(client: KubernetesClient, namespace: str) -> None:
    asked, runs = request("t4", "torch.nn:no_such_model"), runner(client)
    await runs.start(namespace, asked, T4, 1)
    run = await until(lambda: runs.observe(namespace, asked.key, 1), is_over)
    assert run.phase is RunPhase.FAILED
    assert "no_such_model" in run.message
    await runs.start(namespace, asked, T4, 1)
    await until(lambda: runs.observe(namespace, asked.key, 1), lambda run: run.phase is RunPhase.ABSENT)
    await runs.start(namespace, asked, T4, 1)
    assert (await runs.observe(namespace, asked.key, 1)).phase is RunPhase.RUNNING


@pytest.mark.apiserver
@pytest.mark.usefixtures("node")
async def test_a_run_that_hangs_is_stopped_at_its_time_limit(client: KubernetesClient, namespace: str) -> None:
    asked, runs = request("t4", "tests.operator.profiling.profiled_models:hangs"), runner(client, timeout_seconds=5)
    await runs.start(namespace, asked, T4, 1)
    run = await until(lambda: runs.observe(namespace, asked.key, 1), is_over)
    assert run.phase is RunPhase.FAILED
    assert "time limit of 5 s" in run.message
    assert "profiling.timeoutSeconds of the chart" in run.message


@pytest.mark.apiserver
async def test_a_run_that_waits_for_a_node_reports_that(client: KubernetesClient, namespace: str) -> None:
    nowhere, runs = pool("nowhere").build(), runner(client)
    await runs.start(namespace, quick("nowhere"), nowhere, 1)
    run = await until(
        lambda: runs.observe(namespace, quick("nowhere").key, 1), lambda run: "Waiting for a node" in run.message
    )
    assert run.phase is RunPhase.RUNNING


def pending(*, waiting: Document | None = None, unschedulable: str | None = None) -> Document:
    condition = {"status": "False", "type": "PodScheduled", "reason": "Unschedulable", "message": unschedulable}
    return {
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": "profiler", "state": {"waiting": waiting}}] if waiting else None,
            "conditions": [condition] if unschedulable else None,
        }
    }


@pytest.mark.parametrize(
    ("pod", "want_phase", "want_words"),
    [
        pytest.param(None, RunPhase.RUNNING, ["until its pod is created"], id="no pod yet"),
        pytest.param(
            pending(unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
            RunPhase.RUNNING,
            ["Insufficient nvidia.com/gpu", "nodeSelector"],
            id="unschedulable",
        ),
        pytest.param(
            pending(waiting={"reason": "ImagePullBackOff", "message": 'Back-off pulling "x"'}),
            RunPhase.RUNNING,
            ['Back-off pulling "x"', "profiling.image of the chart"],
            id="image cannot be pulled now",
        ),
        pytest.param(
            pending(waiting={"reason": "InvalidImageName", "message": "couldn't parse X:"}),
            RunPhase.FAILED,
            ["couldn't parse X:", "profiling.image of the chart"],
            id="image cannot exist",
        ),
        pytest.param(
            pending(waiting={"reason": "CreateContainerConfigError", "message": "runs as root"}),
            RunPhase.RUNNING,
            ["CreateContainerConfigError: runs as root"],
            id="container cannot be made",
        ),
    ],
)
def test_an_unfinished_run_reports_what_it_waits_for(
    pod: Document | None, want_phase: RunPhase, want_words: list[str]
) -> None:
    run = unfinished_run(pod, log="", now=datetime.now(UTC))
    assert run.phase is want_phase
    assert [word for word in want_words if word not in run.message] == []


def test_a_computing_run_shows_the_last_line_of_its_log() -> None:
    run = unfinished_run({"status": {"phase": "Running"}}, log="loading\n\nblock 3 of 10\n", now=datetime.now(UTC))
    assert run == ProfileRun(RunPhase.RUNNING, message="block 3 of 10")
