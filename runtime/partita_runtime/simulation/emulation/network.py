"""The emulated network: transfers between nodes, one after the other or sharing the bandwidth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from partita_runtime.simulation.emulation.clock import VirtualClock


@dataclass(frozen=True)
class Contention:
    """What competes with a transfer for a node's network; the core does not know of it."""

    together: bool = False
    """Whether transfers share the bandwidth evenly; else they run one after the other, in order of arrival."""
    others: float = 0.0
    """Share of the bandwidth that other traffic takes, from 0 to below 1."""

    def __post_init__(self) -> None:
        if not 0 <= self.others < 1:
            raise ValueError(f"other traffic takes a share of the network from 0 to below 1, not {self.others:g}")


NO_CONTENTION: Final = Contention()
"""One transfer at a time, as the core reserves them."""


class EmulatedNode:
    """One node, with the state of both directions of its network."""

    __slots__ = ("downlink_free_at", "receiving", "sending", "uplink_free_at")

    def __init__(self) -> None:
        self.uplink_free_at = 0
        self.downlink_free_at = 0
        self.sending: dict[_Flow, None] = {}
        self.receiving: dict[_Flow, None] = {}

    def send(self, to: "EmulatedNode", ready: int, micros: int) -> int:
        """The end of a transfer of `micros` that may start at `ready`; within a node it takes no time."""
        if self is to or not micros:
            return ready
        end = max(ready, self.uplink_free_at, to.downlink_free_at) + micros
        self.uplink_free_at = to.downlink_free_at = end
        return end


class Network(Protocol):
    """Carries transfers."""

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, arrived: Callable[..., None], *arguments: Any
    ) -> None:
        """Start a transfer that takes `micros` alone; `arrived(*arguments)` is called at its end."""


def network_of(contention: Contention, clock: VirtualClock) -> Network:
    """The network with this contention."""
    share = 1 - contention.others
    return _SharedNetwork(clock, share) if contention.together else _QueueingNetwork(clock, share)


class _QueueingNetwork:
    """Each direction carries one transfer at a time, in order of arrival."""

    def __init__(self, clock: VirtualClock, share: float) -> None:
        self._clock = clock
        self._share = share

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, arrived: Callable[..., None], *arguments: Any
    ) -> None:
        took = round(micros / self._share)
        self._clock.at(source.send(target, self._clock.now, took), arrived, *arguments)


class _Flow:
    """One transfer under way."""

    __slots__ = ("left", "on_arrival", "rate", "source", "target", "turn", "updated")

    def __init__(
        self, source: EmulatedNode, target: EmulatedNode, micros: float, now: int, on_arrival: Callable[[], None]
    ) -> None:
        self.source = source
        self.target = target
        self.left = micros
        """Remaining microseconds with the full bandwidth."""
        self.rate = 0.0
        """Its share of the bandwidth."""
        self.updated = now
        self.turn = 0
        """Number of its last computed end; earlier ones are outdated."""
        self.on_arrival = on_arrival


class _SharedNetwork:
    """All transfers at once: each gets an even share of its uplink or its downlink, whichever is smaller."""

    def __init__(self, clock: VirtualClock, share: float) -> None:
        self._clock = clock
        self._share = share

    def send(
        self, source: EmulatedNode, target: EmulatedNode, micros: int, arrived: Callable[..., None], *arguments: Any
    ) -> None:
        if source is target or not micros:
            self._clock.at(self._clock.now, arrived, *arguments)
            return
        flow = _Flow(source, target, micros, self._clock.now, lambda: arrived(*arguments))
        source.sending[flow] = target.receiving[flow] = None
        self._update_shares(source, target)

    def _update_shares(self, source: EmulatedNode, target: EmulatedNode) -> None:
        """The number of transfers on two links has changed: update the shares of all transfers on them."""
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
        self._update_shares(flow.source, flow.target)
        flow.on_arrival()
