"""Models as documents for the API server."""

from partita_api.inferencesession import InferenceSessionStatus
from partita_api.profile import ProfilingPhase, ProfilingProgress
from partita_operator.kube.resources import document


def test_empty_texts_are_left_out_unless_they_are_required() -> None:
    """The API server refuses a document without them, and the session could not even be deleted."""
    since = "2026-01-01T00:00:00Z"
    run = ProfilingProgress(
        module="", pool="", key="", attempt=1, phase=ProfilingPhase.WAITING, last_transition_time=since
    )

    (written,) = document(InferenceSessionStatus(profiling=(run,)))["profiling"]

    assert {"module": "", "pool": "", "key": ""}.items() <= written.items()
    assert "message" not in written
