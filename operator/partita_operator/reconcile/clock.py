"""Points in time as Kubernetes writes them, and times to the next pass."""

from datetime import UTC, datetime
from typing import Final

BUSY_SECONDS: Final = 1.0
"""Time to the next pass while something is in progress."""
MAX_PATIENCE_SECONDS: Final = 60.0
"""The longest time between two passes while something does not answer."""


def timestamp(now: datetime) -> str:
    """`now` as RFC 3339 in UTC, to the second."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str, now: datetime) -> float:
    """Seconds from `text` (RFC 3339) to `now`, at least 0."""
    return max(0.0, (now - datetime.fromisoformat(text)).total_seconds())


def patience(away: float, least: float) -> float:
    """Seconds until the next attempt after `away` seconds without an answer: it grows with `away`, from `least`."""
    return min(MAX_PATIENCE_SECONDS, max(least, away))
