"""Label and field selectors."""

import pytest

from partita_devtools.api_server.selectors import BadSelectorError, selects

LABELS = {"tier": "gold", "partita.dev/profile": "abc"}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("", True),
        ("tier=gold", True),
        ("tier==silver", False),
        ("tier!=silver,partita.dev/profile", True),
        ("!tier", False),
        ("zone", False),
        ("tier in (silver, gold)", True),
        ("tier notin (gold),zone", False),
        ("zone notin (a, b)", True),
    ],
)
def test_labels(selector: str, want: bool) -> None:
    assert selects(selector, "")({"metadata": {"labels": LABELS}}) is want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ("metadata.name=traffic", True),
        ("metadata.name!=traffic", False),
        ("involvedObject.uid=1", True),
        ("involvedObject.uid=1,metadata.name=other", False),
        ("spec.none=x", False),
    ],
)
def test_fields(selector: str, want: bool) -> None:
    document = {"metadata": {"name": "traffic"}, "involvedObject": {"uid": "1"}}
    assert selects("", selector)(document) is want


@pytest.mark.parametrize(("labels", "fields"), [("a=b=c", ""), ("(", ""), ("a in b", ""), ("", "metadata.name")])
def test_a_selector_that_cannot_be_read_is_quoted(labels: str, fields: str) -> None:
    with pytest.raises(BadSelectorError, match="is no"):
        selects(labels, fields)
