"""A session author takes accelerators beyond the namespace's quota by profiling runs."""

from datetime import timedelta

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster, started_runs

from partita_api.gpupool import Quota
from partita_api.inferencesession import InferenceSession
from partita_api.meta import RETRY_ANNOTATION
from partita_operator.ports import RunPhase
from partita_operator.settings.model import OperatorSettings, ProfilingSettings


def many_models(name: str) -> SessionBuilder:
    made = session(name)
    for number in range(8):
        made = made.model(f"m{number}")
    return made


def cluster(*sessions: SessionBuilder, quota: int | None) -> SimulatedCluster:
    made = SimulatedCluster()
    quotas = () if quota is None else (Quota(namespace="default", gpus=quota),)
    limited = pool("limited").with_spec(quotas=quotas)
    made.add(limited.build(), *(wanting.build() for wanting in sessions))
    return made


def most_runs(made: SimulatedCluster, seconds: int) -> int:
    """The most profiling runs at the same time that have neither failed nor given a profile."""
    most = 0
    for _ in range(seconds):
        made.look_once()
        made.now += timedelta(seconds=1)
        progress = (p for session in made.cluster().sessions.values() for p in session.status.profiling)
        running = {p.key for p in progress if p.phase == "Running" and ("default", p.key) not in made.profiles}
        most = max(most, len(running))
    return most


@pytest.mark.parametrize(
    ("quota", "want"),
    [pytest.param(None, 9, id="none"), pytest.param(0, 0, id="no accelerators"), pytest.param(2, 2, id="two")],
)
def test_a_namespace_has_at_most_as_many_runs_as_its_quota(quota: int | None, want: int) -> None:
    made = cluster(many_models("traffic"), many_models("second").model("another"), quota=quota)
    made.runner.script = {"limited": (RunPhase.RUNNING,)}
    assert most_runs(made, 20) == want


def test_retries_stay_within_the_quota() -> None:
    made = cluster(many_models("traffic"), quota=1)
    made.settings = OperatorSettings(profiling=ProfilingSettings(backoff_seconds=1))
    made.runner.script = {"limited": (RunPhase.FAILED, RunPhase.SUCCEEDED)}
    assert most_runs(made, 200) == 1
    assert made.condition("traffic", "Profiled") == ("True", "ProfilesReady")


def test_a_session_without_any_quota_says_so() -> None:
    made = cluster(session("traffic").model("detector"), quota=0)
    made.run(5)
    assert started_runs(made) == []
    profiled = next(c for c in made.session("traffic").status.conditions if c.type == "Profiled")
    assert "the quota of its namespace in pool limited is 0 accelerators" in profiled.message


def asking(builder: SessionBuilder, moment: int) -> InferenceSession:
    """The session with a new request to try everything again."""
    built = builder.build()
    metadata = built.metadata.model_copy(update={"annotations": {RETRY_ANNOTATION: str(moment)}})
    return built.model_copy(update={"metadata": metadata})


def test_requests_to_try_again_stay_within_the_quota() -> None:
    wanting = many_models("traffic")
    made = cluster(wanting, quota=1)
    made.settings = OperatorSettings(profiling=ProfilingSettings(backoff_seconds=1, attempts=1))
    made.runner.script = {"limited": (RunPhase.FAILED,)}
    most_runs(made, 60)
    assert made.condition("traffic", "Stalled") == ("True", "ProfilingFailed")
    made.runner.script = {"limited": (RunPhase.RUNNING,)}
    made.add(asking(wanting, 1))
    assert most_runs(made, 60) == 1


def test_requests_to_try_again_start_no_run_before_the_pause_after_a_failure() -> None:
    wanting = session("traffic").model("detector")
    made = cluster(wanting, quota=None)
    made.settings = OperatorSettings(profiling=ProfilingSettings(backoff_seconds=20, attempts=1))
    made.runner.script = {"limited": (RunPhase.FAILED,)}
    for second in range(100):
        made.add(asking(wanting, second))
        most_runs(made, 1)
    assert 1 < len(started_runs(made)) <= 100 // 20 + 1


def test_one_request_to_try_again_does_not_repeat_runs_for_ever() -> None:
    wanting = many_models("traffic")
    made = cluster(wanting, quota=1)
    made.settings = OperatorSettings(profiling=ProfilingSettings(backoff_seconds=1, attempts=1))
    made.runner.script = {"limited": (RunPhase.FAILED,)}
    most_runs(made, 60)
    made.add(asking(wanting, 1))
    most_runs(made, 100)
    assert len(started_runs(made)) == 2 * 8
