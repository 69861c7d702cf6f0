"""What a wait for a session says: what is done of all, and the time left."""

from typing import Any

import pytest
from tests.devtools.demo.demo_results import demo_result

from partita_devtools.errors import DevError
from partita_devtools.sessions.progress import ServingProgress
from partita_devtools.sessions.snapshot import SessionSnapshot
from partita_devtools.sessions.watch import SessionWatch


def snapshot(missing: int = 0, replicas: tuple[int, int] | None = None) -> SessionSnapshot:
    """A session with profiles that are being made, or with a plan whose replicas start: those up, and all."""
    made_up = demo_result()
    made = {"pool": "fast", "key": "k", "attempt": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    running: list[dict[str, Any]] = [{**made, "module": f"m{i}", "phase": "Running"} for i in range(missing)]
    given_up = {**made, "module": "broken", "phase": "GivenUp"}
    session = made_up.session.model_copy(
        update={"status": made_up.session.status.model_validate({"profiling": [*running, given_up]})}
    )
    if replicas is None:
        return SessionSnapshot(session, (), ())
    stage = {"module": "m", "pipeline": "p", "stage": 0, "pool": "fast", "ready": replicas[0], "desired": replicas[1]}
    plan = made_up.plan.model_copy(update={"status": made_up.plan.status.model_validate({"stages": [stage]})})
    return SessionSnapshot(session, (), (plan,))


def test_a_wait_from_profiles_to_replicas() -> None:
    progress = ServingProgress(limit_s=600)
    lines = [
        progress.line(snapshot(missing=4), 10.0),
        progress.line(snapshot(missing=3), 20.0),
        progress.line(snapshot(missing=1), 40.0),
        progress.line(snapshot(), 50.0),
        progress.line(snapshot(replicas=(1, 5)), 60.0),
        progress.line(snapshot(replicas=(3, 5)), 70.0),
        progress.line(snapshot(replicas=(5, 5)), 80.0),
        progress.line(snapshot(replicas=(5, 5)), 700.0),
    ]
    assert lines == [
        "0 of 4 profiles, at most 590 s more",
        "1 of 4 profiles, about 30 s left",
        "3 of 4 profiles, about 10 s left",
        "waiting for a plan, at most 550 s more",
        "1 of 5 replicas, at most 540 s more",
        "3 of 5 replicas, about 10 s left",
        "5 of 5 replicas, at most 520 s more",
        "5 of 5 replicas, at most 0 s more",
    ]


def test_profiles_that_are_added_begin_the_estimate_again() -> None:
    progress = ServingProgress(limit_s=600)
    progress.line(snapshot(missing=2), 0.0)
    assert progress.line(snapshot(missing=1), 10.0) == "1 of 2 profiles, about 10 s left"
    assert progress.line(snapshot(missing=6), 20.0) == "0 of 6 profiles, at most 580 s more"


async def test_a_watch_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def observe(*_: object) -> SessionSnapshot:
        return snapshot(missing=2)

    monkeypatch.setattr("partita_devtools.sessions.watch.observe", observe)
    monkeypatch.setattr("partita_devtools.sessions.watch._REPORT_EVERY_S", 0.0)
    lines: list[str] = []
    client: Any = None
    watch = SessionWatch(client, demo_result().session, (), lines.append)
    with pytest.raises(DevError):
        await watch.until_serving(0.0, "advice")
    assert lines[-1].endswith("s] InferenceSession traffic: 0 of 2 profiles, at most 0 s more")
