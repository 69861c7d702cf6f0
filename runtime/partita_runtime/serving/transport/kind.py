"""The ways of batches between the processes of a session, by name."""

from enum import StrEnum


class Transport(StrEnum):
    """What carries batches and feature maps between the processes of a session."""

    STREAMS = "Streams"
    """Connections from pod to pod, on free ports."""
    ACTOR_CALLS = "ActorCalls"
    """Ray actor calls, where networks do not let pods connect on ports that Ray does not use."""
