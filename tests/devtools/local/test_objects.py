"""References to objects, and the tables of `partita local get`."""

from datetime import UTC, datetime
from typing import Any

import pytest

from partita_devtools.local.objects import parse_reference, rows

NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("isess/traffic", "isess/traffic"),
        ("InferenceSession/traffic", "isess/traffic"),
        ("inferencesessions", "inferencesessions"),
        ("gpool", "gpupools"),
        ("pplan/a-1", "pplan/a-1"),
    ],
)
def test_references(text: str, want: str) -> None:
    assert str(parse_reference(text)) == want


def test_a_reference_to_another_kind_is_refused_with_the_kinds() -> None:
    with pytest.raises(ValueError, match="'pods' names no kind of local mode; give gpool, isess, pplan"):
        parse_reference("pods")


@pytest.mark.parametrize(
    ("created", "want"),
    [
        ("2026-01-02T11:59:59Z", "1s"),
        ("2026-01-02T11:00:01Z", "59m"),
        ("2026-01-01T12:00:00Z", "1d"),
        ("2026-01-02T12:00:05Z", "0s"),
    ],
)
def test_a_row_has_the_columns_of_kubectl(created: str, want: str) -> None:
    pool: dict[str, Any] = {
        "metadata": {"name": "fast", "creationTimestamp": created},
        "spec": {"pricePerHour": "0.5"},
        "status": {"capacity": 2, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    header, table = rows(parse_reference("gpool").kind, [pool], NOW)
    assert dict(zip(header, table[0], strict=True)) == {
        "Name": "fast",
        "Nodes": "",
        "Capacity": "2",
        "Free": "",
        "Price": "0.5",
        "Idle": "",
        "Ready": "True",
        "Age": want,
    }


def test_namespaced_objects_have_their_namespace() -> None:
    metadata = {"name": "traffic", "namespace": "shop", "creationTimestamp": "2026-01-02T11:00:00Z"}
    header, table = rows(parse_reference("isess").kind, [{"metadata": metadata}], NOW)
    assert header[:2] == ["Namespace", "Name"]
    assert table[0][:2] == ["shop", "traffic"]
