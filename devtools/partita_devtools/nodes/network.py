"""The network of nodes that share one machine: a bridge each, and the ways out of them.

Pods reach each other by plain routing, Services by kube-proxy's rules, and the API server, which listens on the
loopback interface only, by one rule of ours.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from partita_devtools.control_plane.commands import API_SERVICE_ADDRESS
from partita_devtools.errors import DevError
from partita_devtools.nodes.node import Node

POD_RANGE = "10.78.0.0/16"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LEFT_BEHIND = {
    "nat": ("KUBE-MARK-DROP", "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"),
    "mangle": ("KUBE-PROXY-CANARY",),
    "filter": ("KUBE-PROXY-CANARY",),
}
_TAG = ("-m", "comment", "--comment", "partita")


def connect(nodes: Iterable[Node], api_server_port: int) -> None:
    """Make the nodes' bridges and rules; those of an earlier start are replaced. Raises DevError without the rights."""
    nodes = tuple(nodes)
    disconnect(nodes)
    _FORWARDING.write_text("1")
    for node in nodes:
        _run("ip", "link", "add", node.bridge, "type", "bridge")
        _run("ip", "address", "add", f"{node.address}/24", "dev", node.bridge)
        _run("ip", "link", "set", node.bridge, "up")
        # Lets packets from pods be sent on to 127.0.0.1, where the API server is.
        Path(f"/proc/sys/net/ipv4/conf/{node.bridge}/route_localnet").write_text("1")
    for rule in _rules(api_server_port):
        _run("iptables", "--wait", "--table", "nat", "--append", *rule)


def disconnect(nodes: Iterable[Node]) -> None:
    """Take down what `connect` made; what is not there is passed over."""
    for rule in _our_rules():
        _run("iptables", "--wait", "--table", "nat", "--delete", *rule)
    for node in nodes:
        if Path(f"/sys/class/net/{node.bridge}").exists():
            _run("ip", "link", "delete", node.bridge)


def forget_services() -> None:
    """Remove what kube-proxy's own clean-up leaves behind: its marks and the chains by which it sees a flush."""
    for table, chains in _LEFT_BEHIND.items():
        for chain in chains:
            for command in ("--flush", "--delete-chain"):
                subprocess.run(
                    ["iptables", "--wait", "--table", table, command, chain], capture_output=True, check=False
                )


def _rules(api_server_port: int) -> list[list[str]]:
    api_server = ["-d", f"{API_SERVICE_ADDRESS}/32", "-p", "tcp", "-m", "tcp", "--dport", "443", *_TAG]
    to_loopback = [*api_server, "-j", "DNAT", "--to-destination", f"127.0.0.1:{api_server_port}"]
    outward = ["-s", POD_RANGE, "!", "-d", POD_RANGE, *_TAG, "-j", "MASQUERADE"]
    return [["PREROUTING", *to_loopback], ["OUTPUT", *to_loopback], ["POSTROUTING", *outward]]


def _our_rules() -> list[list[str]]:
    listed = _run("iptables", "--wait", "--table", "nat", "--list-rules").splitlines()
    words = [line.split() for line in listed]
    return [rule[1:] for rule in words if rule[:1] == ["-A"] and list(_TAG) == _comment(rule)]


def _comment(rule: Sequence[str]) -> list[str]:
    start = next((at for at in range(len(rule)) if tuple(rule[at : at + 3]) == _TAG[:3]), None)
    return [] if start is None else list(rule[start : start + len(_TAG)])


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevError(f"`{' '.join(argv)}` failed: {done.stderr.strip()}; nodes need root and iptables")
    return done.stdout
