"""Label selectors mean what Kubernetes means by them."""

import pytest

from partita_api.fields.label_selector import LabelSelector

SELECTOR = LabelSelector.model_validate(
    {
        "matchLabels": {"gpu": "l4"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "tier", "operator": "NotIn", "values": ["spot"]},
            {"key": "ready", "operator": "Exists"},
            {"key": "draining", "operator": "DoesNotExist"},
        ],
    }
)
SELECTED = {"gpu": "l4", "zone": "a", "ready": ""}


def test_it_is_written_as_kubectl_reads_it() -> None:
    assert str(SELECTOR) == "gpu=l4,zone in (a,b),tier notin (spot),ready,!draining"


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param(SELECTED, True, id="all requirements met"),
        pytest.param({**SELECTED, "tier": "gold"}, True, id="NotIn: another value"),
        pytest.param({**SELECTED, "gpu": "t4"}, False, id="another value"),
        pytest.param({**SELECTED, "zone": "c"}, False, id="In: none of the values"),
        pytest.param({"gpu": "l4", "ready": ""}, False, id="In: no label"),
        pytest.param({**SELECTED, "tier": "spot"}, False, id="NotIn: one of the values"),
        pytest.param({"gpu": "l4", "zone": "a"}, False, id="Exists: no label"),
        pytest.param({**SELECTED, "draining": ""}, False, id="DoesNotExist: the label"),
    ],
)
def test_all_requirements_must_be_met(labels: dict[str, str], want: bool) -> None:
    assert SELECTOR.matches(labels) is want


def test_an_empty_selector_matches_everything() -> None:
    assert LabelSelector().is_empty
    assert LabelSelector().matches({})
