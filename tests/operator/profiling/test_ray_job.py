"""Profiling runs as jobs of a real Ray cluster."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.builders import pool
from tests.operator.profiling.requests import IMPORTS, is_over, quick, request, until
from tests.security.clients.hostile_server import complete, server

from partita_api.gpupool import GPUPool, Sharing, SharingMode
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_operator.engines.ray_dashboard import RayDashboard
from partita_operator.ports import EngineUnavailableError, ProfileRun, RunPhase
from partita_operator.profiling.ray_job import JOBS, LOG_SECONDS, RayJobRunner, job, submission_id
from partita_operator.settings.model import OperatorSettings, ProfilingSettings
from partita_operator.settings.ray import RaySettings

NAMESPACE = "default"
GPUS = pool("large").build()


def cpus(name: str) -> GPUPool:
    """A class of CPU cores of the test's Ray cluster."""
    return pool(name).with_spec(sharing=Sharing(mode=SharingMode.CPU)).build()


def settings(cluster: RayCluster, timeout_seconds: int = 120, token: str | None = None) -> OperatorSettings:
    return OperatorSettings(
        ray=RaySettings(
            address=cluster.dashboard_url,
            token=token or cluster.auth_token,
            runtime_env={"env_vars": {"PYTHONPATH": IMPORTS}},
        ),
        profiling=ProfilingSettings(timeout_seconds=timeout_seconds),
    )


@pytest.fixture
async def runner(ray_cluster: RayCluster) -> AsyncIterator[RayJobRunner]:
    made = RayJobRunner(settings(ray_cluster))
    yield made
    await made.close()


def test_a_job_takes_one_whole_accelerator_of_its_class() -> None:
    submitted = job("id", quick("large"), GPUS, {"working_dir": "gcs://x.zip", "env_vars": {"A": "1"}})
    assert submitted["entrypoint_num_gpus"] == 1
    assert submitted["entrypoint_resources"] == {"partita-pool-large": 1}
    assert submitted["runtime_env"]["working_dir"] == "gcs://x.zip"
    assert submitted["runtime_env"]["env_vars"]["A"] == "1"
    assert job("id", quick("large"), cpus("large"), {})["entrypoint_num_gpus"] == 0


@pytest.mark.ray
async def test_a_run_returns_its_profile_and_is_removed(ray_cluster: RayCluster, runner: RayJobRunner) -> None:
    asked = quick("large", seed=1)
    assert (await runner.observe(NAMESPACE, asked.key, 1)).phase is RunPhase.ABSENT
    await runner.start(NAMESPACE, asked, cpus("large"), 1)
    await runner.start(NAMESPACE, asked, cpus("large"), 1)
    run = await until(lambda: runner.observe(NAMESPACE, asked.key, 1), is_over)
    assert run.phase is RunPhase.SUCCEEDED, run.message
    assert run.profile is not None
    assert run.profile.request == asked
    await runner.remove(NAMESPACE, asked.key, 1)
    await runner.remove(NAMESPACE, asked.key, 1)
    assert (await runner.observe(NAMESPACE, asked.key, 1)).phase is RunPhase.ABSENT
    assert submission_id(asked.key, 1) not in str(ray_cluster.get(JOBS))


@pytest.mark.ray
async def test_a_failed_run_reports_its_cause_and_can_start_again(runner: RayJobRunner) -> None:
    asked = request("small", f"torch.nn:no_such_model_{uuid4().hex}")
    await runner.start(NAMESPACE, asked, cpus("small"), 1)
    run = await until(lambda: runner.observe(NAMESPACE, asked.key, 1), is_over)
    assert run.phase is RunPhase.FAILED
    assert "no_such_model" in run.message

    async def again() -> ProfileRun:
        await runner.start(NAMESPACE, asked, cpus("small"), 1)
        return await runner.observe(NAMESPACE, asked.key, 1)

    await until(again, lambda run: run.phase is RunPhase.RUNNING)
    await runner.remove(NAMESPACE, asked.key, 1)


@pytest.mark.ray
async def test_a_run_that_hangs_is_stopped_at_its_time_limit(ray_cluster: RayCluster) -> None:
    asked = request("small", "tests.operator.profiling.profiled_models:hangs")
    patient, impatient = RayJobRunner(settings(ray_cluster)), RayJobRunner(settings(ray_cluster, timeout_seconds=1))
    await patient.start(NAMESPACE, asked, cpus("small"), 1)
    await until(lambda: patient.observe(NAMESPACE, asked.key, 1), lambda run: "loading weights" in run.message)
    run = await impatient.observe(NAMESPACE, asked.key, 1)
    assert run.phase is RunPhase.FAILED
    assert "time limit of 1 s" in run.message
    assert "loading weights" in run.message
    stopped = await until(lambda: impatient.observe(NAMESPACE, asked.key, 1), is_over)
    assert stopped.phase is RunPhase.FAILED
    assert "time limit of 1 s" in stopped.message
    await impatient.remove(NAMESPACE, asked.key, 1)
    assert (await patient.observe(NAMESPACE, asked.key, 1)).phase is RunPhase.ABSENT
    await patient.close()
    await impatient.close()


@pytest.mark.ray
async def test_a_run_that_waits_for_an_accelerator_reports_that(runner: RayJobRunner) -> None:
    asked = quick("nowhere")
    await runner.start(NAMESPACE, asked, cpus("nowhere"), 1)
    run = await until(lambda: runner.observe(NAMESPACE, asked.key, 1), lambda run: "resources" in run.message)
    assert run.phase is RunPhase.RUNNING
    await runner.remove(NAMESPACE, asked.key, 1)


@pytest.mark.parametrize(
    ("status", "ended_seconds_ago", "want", "want_words"),
    [
        pytest.param("RUNNING", None, RunPhase.RUNNING, "", id="still running"),
        pytest.param("SUCCEEDED", 1, RunPhase.RUNNING, "cannot read its log yet", id="just ended"),
        pytest.param("SUCCEEDED", LOG_SECONDS + 1, RunPhase.FAILED, "Check that its node", id="its node is lost"),
        pytest.param("FAILED", LOG_SECONDS + 1, RunPhase.FAILED, "out of memory", id="failed on a lost node"),
    ],
)
async def test_a_run_whose_log_ray_cannot_read(
    status: str, ended_seconds_ago: float | None, want: RunPhase, want_words: str
) -> None:
    now = time.time() * 1000
    end = None if ended_seconds_ago is None else now - ended_seconds_ago * 1000
    found = {"status": status, "message": "out of memory", "start_time": now - 90_000, "end_time": end}
    answers = iter([complete(json.dumps(found).encode()), complete(b"", status="500 Internal Server Error")])

    async def answering(writer: asyncio.StreamWriter) -> None:
        await next(answers)(writer)

    async with server(answering) as (url, requests):
        runner = RayJobRunner(OperatorSettings(ray=RaySettings(address=url)))
        run = await runner.observe(NAMESPACE, "key", 1)
        await runner.close()
    assert (run.phase, want_words in run.message) == (want, True), run
    assert [request.endswith("/logs HTTP/1.1") for request in requests] == [False, True]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("address", "token", "want_words"),
    [
        pytest.param(None, "0" * 32, ["ray.tokenSecret"], id="wrong token"),
        pytest.param("http://127.0.0.1:1", None, ["http://127.0.0.1:1", "in the chart: ray.address"], id="no server"),
    ],
)
async def test_an_unusable_cluster_is_an_error_that_names_the_setting(
    ray_cluster: RayCluster, address: str | None, token: str | None, want_words: list[str]
) -> None:
    dashboard = RayDashboard(address or ray_cluster.dashboard_url, token or ray_cluster.auth_token)
    with pytest.raises(EngineUnavailableError) as raised:
        await dashboard.get(JOBS, list)
    assert [word for word in want_words if word not in str(raised.value)] == []
    await dashboard.close()
