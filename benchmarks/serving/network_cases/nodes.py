"""Nodes with a slow network: network namespaces, joined by a bridge to this machine."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

_QUEUE_MILLIS = 20
"""Most that waits for a node's network; more would delay the reports of replicas."""
_LEAST_TIMEOUT_MILLIS = 10
"""After how long a lost packet is sent again. TCP's 200 ms are for the internet: a transfer takes that long here."""


@dataclass(frozen=True)
class Node:
    """One node, which has as much bandwidth in each direction."""

    name: str
    address: str

    @property
    def within(self) -> tuple[str, ...]:
        """The prefix of a command that runs on the node."""
        return ("ip", "netns", "exec", self.name)


@contextlib.contextmanager
def nodes(count: int, megabits: float) -> Iterator[list[Node]]:
    """Nodes that reach each other and this machine, with this bandwidth. Ends the program if none can be made here."""
    number = os.getpid()
    subnet, bridge = f"198.18.{number % 251}", f"pb{number}"
    made = [Node(f"partita-{number}-{k}", f"{subnet}.{k + 2}") for k in range(count)]
    try:
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "address", "add", f"{subnet}.1/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for k, node in enumerate(made):
            port = f"pv{number}-{k}"
            _run("ip", "netns", "add", node.name)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "net", "netns", node.name)
            _run("ip", "link", "set", port, "master", bridge, "up")
            _run(*node.within, "ip", "address", "add", f"{node.address}/24", "dev", "net")
            _run(*node.within, "ip", "link", "set", "net", "up")
            route = ("dev", "net", "src", node.address, "rto_min", f"{_LEAST_TIMEOUT_MILLIS}ms")
            _run(*node.within, "ip", "route", "change", f"{subnet}.0/24", *route)
            _limit((), port, megabits)
            _limit(node.within, "net", megabits)
        yield made
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"no nodes can be made here, which needs root, ip and tc: {error}") from error
    finally:
        for node in made:
            subprocess.run(("ip", "netns", "delete", node.name), check=False, capture_output=True)
        subprocess.run(("ip", "link", "delete", bridge), check=False, capture_output=True)


def _limit(within: tuple[str, ...], device: str, megabits: float) -> None:
    """Limit what a device sends."""
    rate = ("rate", f"{megabits:g}mbit", "burst", "32kb", "latency", f"{_QUEUE_MILLIS}ms")
    _run(*within, "tc", "qdisc", "add", "dev", device, "root", "tbf", *rate)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
