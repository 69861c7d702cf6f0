"""Label selectors mean what Kubernetes means by them."""

import pytest
from pydantic import ValidationError

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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("gpu", "", id="short"),
        pytest.param("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3_x", id="usual"),
        pytest.param(f"{'d' * 253}/{'n' * 63}"[-316:], "v" * 63, id="as long as possible"),
    ],
)
def test_labels_of_kubernetes_are_accepted(key: str, value: str) -> None:
    assert LabelSelector(match_labels={key: value}).match_labels == {key: value}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("", "l4", id="no key"),
        pytest.param("gpu,zone=a", "l4", id="another requirement in the key"),
        pytest.param("/gpu", "l4", id="no domain"),
        pytest.param("NVIDIA.com/gpu", "l4", id="a domain in capitals"),
        pytest.param("n" * 64, "l4", id="a long name"),
        pytest.param("gpu\n", "l4", id="a line break"),
        pytest.param("gpu", "l4,zone=a", id="another requirement in the value"),
        pytest.param("gpu", "-l4", id="a value that begins with a dash"),
        pytest.param("gpu", "🙂", id="a value that is not ASCII"),
    ],
)
def test_a_label_that_the_api_server_would_refuse_is_refused_before(key: str, value: str) -> None:
    """The API server would refuse each list request with it, so the pool's passes would fail."""
    requirement = {"key": key, "operator": "In", "values": [value]}
    for selector in ({"matchLabels": {key: value}}, {"matchExpressions": [requirement]}):
        with pytest.raises(ValidationError, match="String should"):
            LabelSelector.model_validate(selector)
