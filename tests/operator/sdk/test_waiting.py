"""What waiting for a session makes of its conditions."""

from typing import Any

import pytest
from tests.builders import session

from partita.waiting import Phase, step_of
from partita_api.inferencesession import InferenceSession


def seen(conditions: dict[str, tuple[str, str]], *, generation: int = 2, observed: int = 2) -> InferenceSession:
    """A session with these conditions: status and reason by type."""
    made = session("shop").slo(200).rate(50).model("classifier").build()
    document: dict[str, Any] = made.model_dump(mode="json", by_alias=True)
    document["metadata"]["generation"] = generation
    document["status"] = {
        "observedGeneration": observed,
        "conditions": [
            {
                "type": type,
                "status": status,
                "reason": reason,
                "message": f"{type} says so.",
                "observedGeneration": observed,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for type, (status, reason) in conditions.items()
        ],
    }
    return InferenceSession.model_validate(document)


READY = {"Ready": ("True", "Serving"), "Stalled": ("False", "Settled")}


@pytest.mark.parametrize(
    ("found", "want", "says"),
    [
        pytest.param(seen({}, observed=0), Phase.WORKING, "has not processed", id="not seen yet"),
        pytest.param(seen({}), Phase.WORKING, "has not processed", id="no conditions"),
        pytest.param(seen(READY, observed=1), Phase.WORKING, "has not processed", id="ready before the change"),
        pytest.param(seen({"Ready": ("False", "Profiling")}), Phase.WORKING, "Profiling: Ready says", id="at work"),
        pytest.param(seen({"Ready": ("Unknown", "EngineUnavailable")}), Phase.WORKING, "Engine", id="no engine"),
        pytest.param(
            seen({"Ready": ("False", "NoPoolSelected"), "Stalled": ("True", "NoPoolSelected")}),
            Phase.STALLED,
            "NoPoolSelected: Ready says",
            id="stalled",
        ),
        pytest.param(seen(READY), Phase.READY, "Serving", id="ready"),
        pytest.param(seen({**READY, "Reconciling": ("True", "Scaling")}), Phase.READY, "Serving", id="serves, scales"),
    ],
)
def test_the_step_of_a_session(found: InferenceSession, want: Phase, says: str) -> None:
    step = step_of(found)
    assert (step.phase, says in step.message) == (want, True), step.message
