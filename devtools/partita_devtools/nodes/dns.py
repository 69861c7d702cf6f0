"""The DNS of the cluster: one CoreDNS on this machine, at the address of the first node, for all nodes."""

from __future__ import annotations

from pathlib import Path

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.releases import COREDNS
from partita_devtools.nodes.node import DevNode

DOMAIN = "cluster.local"
_RESOLVERS = Path("/etc/resolv.conf")


def address(nodes: tuple[DevNode, ...]) -> str:
    """Where pods ask for names."""
    return nodes[0].address


def write_configuration(
    file: Path, nodes: tuple[DevNode, ...], kubeconfig: Path, health_port: int, resolvers: Path = _RESOLVERS
) -> None:
    """Write CoreDNS' configuration. Names outside of the cluster go to the machine's resolvers, if it has any."""
    has_resolver = any(line.startswith("nameserver") for line in resolvers.read_text(encoding="utf-8").splitlines())
    forward = f"    forward . {resolvers}\n" if has_resolver else ""
    file.write_text(
        f""".:53 {{
    bind {address(nodes)}
    errors
    ready 127.0.0.1:{health_port}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        fallthrough in-addr.arpa
    }}
{forward}    cache 5
}}
""",
        encoding="utf-8",
    )


def command(binaries: Binaries, file: Path) -> list[str]:
    """The command line of CoreDNS."""
    return [binaries.path(COREDNS), "-conf", str(file)]
