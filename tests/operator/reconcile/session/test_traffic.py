"""A status is written for real changes, and not for fluctuations."""

import pytest
from tests.builders import session

from partita_api.inferencesession import InferenceSession, InferenceSessionStatus, Signals
from partita_operator.reconcile.session.traffic import signals_to_report

SAID = Signals(
    offered_rate="100",
    goodput="99.5",
    bad_rate="0.005",
    idle_fraction="0.3",
    p50_ms="40",
    p99_ms="90",
    recommendation="Module detector: 0.5% of its requests were dropped or late; 2 replicas are still starting.",
)


def that_says(signals: Signals | None) -> InferenceSession:
    built = session("traffic").model("detector").build()
    return built.model_copy(update={"status": InferenceSessionStatus(signals=signals)})


@pytest.mark.parametrize(
    ("changes", "want_written"),
    [
        pytest.param({"offered_rate": "109", "goodput": "108"}, False, id="arrivals fluctuate"),
        pytest.param({"offered_rate": "130", "goodput": "129"}, True, id="more requests"),
        pytest.param({"offered_rate": "0", "goodput": "0"}, True, id="no more requests"),
        pytest.param({"p50_ms": "43", "p99_ms": "100"}, False, id="latency fluctuates"),
        pytest.param({"p99_ms": "140"}, True, id="latency grows"),
        pytest.param({"idle_fraction": "0.33"}, False, id="idle time fluctuates"),
        pytest.param({"idle_fraction": "0.4"}, True, id="more idle time"),
        pytest.param({"bad_rate": "0.008"}, False, id="some more are late"),
        pytest.param({"bad_rate": "0.02"}, True, id="the SLO is missed"),
        pytest.param(
            {"recommendation": SAID.recommendation.replace("0.5%", "0.7%")},
            False,
            id="same recommendation, other share",
        ),
        pytest.param(
            {"recommendation": SAID.recommendation.replace("2 rep", "3 rep")}, True, id="another recommendation"
        ),
    ],
)
def test_only_real_changes_are_written(changes: dict[str, str], want_written: bool) -> None:
    measured = Signals.model_validate({**SAID.model_dump(), **changes})
    reported = signals_to_report(that_says(SAID), measured)
    assert reported == (measured if want_written else SAID)


def test_random_fluctuations_of_small_rates_are_not_written() -> None:
    said, measured = (Signals(offered_rate=rate, goodput=rate) for rate in ("1", "1.6"))
    assert signals_to_report(that_says(said), measured) == said


def test_the_first_measurement_is_written() -> None:
    assert signals_to_report(that_says(None), SAID) == SAID


def test_many_small_steps_in_one_direction_are_written() -> None:
    said, written = SAID, 0
    for rate in range(100, 200, 5):
        reported = signals_to_report(that_says(said), Signals(**{**SAID.model_dump(), "offered_rate": rate}))
        written += reported != said
        said = reported
    assert float(said.offered_rate) >= 150
    assert written <= 4
