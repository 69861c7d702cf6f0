"""Moments in time as Kubernetes writes them, and how long to wait."""

from datetime import UTC, datetime
from typing import Final

BUSY_SECONDS: Final = 1.0
"""How soon to look again while something is under way."""
MAX_PATIENCE_SECONDS: Final = 60.0
"""How seldom to look again, at most, while something stays away."""


def timestamp(now: datetime) -> str:
    """`now` as RFC 3339 in UTC, to the second."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str, now: datetime) -> float:
    """Seconds from the RFC 3339 moment `text` to `now`, not below 0."""
    return max(0.0, (now - datetime.fromisoformat(text)).total_seconds())


def patience(away: float, least: float) -> float:
    """Seconds until the next try of what has been away for `away` seconds: the longer away, the longer."""
    return min(MAX_PATIENCE_SECONDS, max(least, away))
