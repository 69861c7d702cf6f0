"""The emulated network: what passes between nodes, one transfer after the other or all at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from partita_runtime.simulation.emulation.clock import VirtualClock


@dataclass(frozen=True)
class Contention:
    """What transfers have to share each direction of a node's network with; the core knows of neither."""

    together: bool = False
    """Whether transfers share it evenly at the same time; else each has it alone, in the order in which they come."""
    others: float = 0.0
    """Share of the bandwidth that is taken by traffic that is not Partita's, from 0 to below 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.others < 1:
            raise ValueError(f"other traffic takes a share of the network from 0 to below 1, not {self.others:g}")


NO_CONTENTION: Final = Contention()
"""One transfer at a time, as the core reserves them."""


class EmulatedNode:
    """One machine, with the state of both directions of its network."""

    __slots__ = ("downlink_free_at", "receiving", "sending", "uplink_free_at")

    def __init__(self) -> None:
        self.uplink_free_at = 0
        self.downlink_free_at = 0
        self.sending: dict[_Flow, None] = {}
        self.receiving: dict[_Flow, None] = {}

    def send(self, to: "EmulatedNode", ready: int, micros: int) -> int:
        """When a transfer that takes `micros` and may start at `ready` is there; within a node it takes no time."""
        if self is to or not micros:
            return ready
        end = max(ready, self.uplink_free_at, to.downlink_free_at) + micros
        self.uplink_free_at = to.downlink_free_at = end
        return end


class Network(Protocol):
    """Carries transfers."""

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, there: Callable[..., None], *arguments: Any
    ) -> None:
        """A transfer that would take `micros` alone begins now; `there(*arguments)` is called at its end."""


def network_of(contention: Contention, clock: VirtualClock) -> Network:
    """The network for such contention."""
    share = 1 - contention.others
    return _SharedNetwork(clock, share) if contention.together else _QueueingNetwork(clock, share)


class _QueueingNetwork:
    """Each direction carries one transfer at a time, first come first served."""

    def __init__(self, clock: VirtualClock, share: float) -> None:
        self._clock = clock
        self._share = share

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, there: Callable[..., None], *arguments: Any
    ) -> None:
        took = round(micros / self._share)
        self._clock.at(source.send(target, self._clock.now, took), there, *arguments)


class _Flow:
    """One transfer under way."""

    __slots__ = ("left", "rate", "source", "target", "tell", "turn", "updated")

    def __init__(
        self, source: EmulatedNode, target: EmulatedNode, micros: float, now: int, tell: Callable[[], None]
    ) -> None:
        self.source = source
        self.target = target
        self.left = micros
        """Microseconds that it would still take alone."""
        self.rate = 0.0
        """Share of the bandwidth that it has."""
        self.updated = now
        self.turn = 0
        """Number of its last forecast; earlier ones no longer hold."""
        self.tell = tell


class _SharedNetwork:
    """All transfers at once: each gets the smaller of an even share of its uplink and one of its downlink."""

    def __init__(self, clock: VirtualClock, share: float) -> None:
        self._clock = clock
        self._share = share

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, there: Callable[..., None], *arguments: Any
    ) -> None:
        if source is target or not micros:
            self._clock.at(self._clock.now, there, *arguments)
            return
        flow = _Flow(source, target, micros, self._clock.now, lambda: there(*arguments))
        source.sending[flow] = target.receiving[flow] = None
        self._share_out(source, target)

    def _share_out(self, source: EmulatedNode, target: EmulatedNode) -> None:
        """The number of transfers on these two links has changed: so have the shares of all that are on them."""
        now = self._clock.now
        for flow in {**source.sending, **target.receiving}:
            rate = self._share / max(len(flow.source.sending), len(flow.target.receiving))
            if rate == flow.rate:
                continue
            flow.left -= (now - flow.updated) * flow.rate
            flow.updated, flow.rate = now, rate
            flow.turn += 1
            self._clock.at(now + max(0, round(flow.left / rate)), self._ended, flow, flow.turn)

    def _ended(self, flow: _Flow, turn: int) -> None:
        if turn != flow.turn:
            return
        del flow.source.sending[flow], flow.target.receiving[flow]
        self._share_out(flow.source, flow.target)
        flow.tell()
