"""Label and field selectors as the API server reads them."""

from collections.abc import Mapping


def equal(labels: Mapping[str, str]) -> str:
    """Objects whose labels, or fields, have all of these values."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def exists(label: str) -> str:
    """Objects that have the label, with any value."""
    return label
