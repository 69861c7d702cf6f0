"""The kinds of transport between the processes of a session."""

from enum import StrEnum


class TransportKind(StrEnum):
    """What carries batches and feature maps between the processes of a session."""

    STREAMS = "Streams"
    """TCP connections between pods, on free ports."""
    ACTOR_CALLS = "ActorCalls"
    """Ray actor calls, for networks that let pods connect on Ray's ports only."""
