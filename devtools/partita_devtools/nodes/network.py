"""The network of nodes that share one machine: a bridge for each node, and NAT rules.

Pods reach each other by routing, Services by kube-proxy's rules, and the API server, which listens on the loopback
interface only, by one rule of this module.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from partita_devtools.control_plane.commands import API_SERVICE_ADDRESS
from partita_devtools.errors import DevError
from partita_devtools.nodes.node import DevNode

POD_RANGE = "10.78.0.0/16"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_LEFT_BEHIND = {
    "nat": ("KUBE-MARK-DROP", "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"),
    "mangle": ("KUBE-PROXY-CANARY",),
    "filter": ("KUBE-PROXY-CANARY",),
}
_TAG = ("-m", "comment", "--comment", "partita")


def connect(nodes: Iterable[DevNode], api_server_port: int) -> None:
    """Create the nodes' bridges and rules, in place of those of an earlier start. Raises DevError without root."""
    nodes = tuple(nodes)
    disconnect(nodes)
    _FORWARDING.write_text("1")
    for node in nodes:
        _run("ip", "link", "add", node.bridge, "type", "bridge")
        _run("ip", "address", "add", f"{node.address}/24", "dev", node.bridge)
        _run("ip", "link", "set", node.bridge, "up")
        # Allows packets from pods to 127.0.0.1, where the API server listens.
        Path(f"/proc/sys/net/ipv4/conf/{node.bridge}/route_localnet").write_text("1")
    for rule in _rules(api_server_port):
        _run("iptables", "--wait", "--table", "nat", "--append", *rule)


def disconnect(nodes: Iterable[DevNode]) -> None:
    """Remove the bridges and rules of `connect` that exist."""
    for rule in _present_rules():
        _run("iptables", "--wait", "--table", "nat", "--delete", *rule)
    for node in nodes:
        if Path(f"/sys/class/net/{node.bridge}").exists():
            _run("ip", "link", "delete", node.bridge)


def remove_service_rules() -> None:
    """Remove the chains that `kube-proxy --cleanup` leaves behind."""
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


def _present_rules() -> list[list[str]]:
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
