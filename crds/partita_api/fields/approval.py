"""Who decides that a change takes effect."""

from enum import StrEnum


class Approval(StrEnum):
    """Whether a new plan takes effect by itself."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"
