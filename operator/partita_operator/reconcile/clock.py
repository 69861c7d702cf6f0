"""Moments in time as Kubernetes writes them."""

from datetime import UTC, datetime


def timestamp(now: datetime) -> str:
    """`now` as RFC 3339 in UTC, to the second."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str, now: datetime) -> float:
    """Seconds from the RFC 3339 moment `text` to `now`, not below 0."""
    return max(0.0, (now - datetime.fromisoformat(text)).total_seconds())
