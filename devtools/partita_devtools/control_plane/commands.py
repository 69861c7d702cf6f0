"""The command lines of a control plane's programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.releases import API_SERVER, CONTROLLER_MANAGER, ETCD

SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
"""The API server's address for pods: the first one of the Services' range."""


@dataclass(frozen=True)
class Ports:
    """The TCP ports of a control plane on 127.0.0.1."""

    api_server: int
    controller_manager: int
    etcd_client: int
    etcd_peer: int


@dataclass(frozen=True)
class StateFiles:
    """The files that a control plane's programs read, all below its state directory."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Directory of keys and certificates: `ca`, `kube-apiserver`, `kube-controller-manager`, `webhook-client`."""
        return self.directory / "pki"

    @property
    def service_account_key(self) -> Path:
        """The private key that signs service-account tokens."""
        return self.pki / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        """The static tokens: one `token,user,uid,"groups"` a line."""
        return self.directory / "tokens.csv"

    @property
    def admission(self) -> Path:
        """How the API server identifies itself to admission webhooks."""
        return self.directory / "admission.json"

    @property
    def audit_policy(self) -> Path:
        """Whose requests the API server writes to its audit log; without this file there is none."""
        return self.directory / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The requests of the audited users: one JSON object for each answered request, without bodies."""
        return self.directory / "logs/audit.log"

    @property
    def controller_manager_kubeconfig(self) -> Path:
        """The controller manager's own credentials."""
        return self.directory / "controller-manager.kubeconfig"


def command(name: str, binaries: Binaries, ports: Ports, files: StateFiles) -> list[str]:
    """The command line that starts the program `name` (one of the three constants above)."""
    if name == ETCD:
        return _etcd(binaries, ports, files)
    if name == API_SERVER:
        return _api_server(binaries, ports, files)
    return _controller_manager(binaries, ports, files)


def _etcd(binaries: Binaries, ports: Ports, files: StateFiles) -> list[str]:
    client = f"http://127.0.0.1:{ports.etcd_client}"
    peer = f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        binaries.path(ETCD),
        f"--data-dir={files.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _api_server(binaries: Binaries, ports: Ports, files: StateFiles) -> list[str]:
    return [
        binaries.path(API_SERVER),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd_client}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        "--advertise-address=127.0.0.1",
        # The endpoints of the `kubernetes` service must not be loopback addresses.
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={files.pki / f'{API_SERVER}.crt'}",
        f"--tls-private-key-file={files.pki / f'{API_SERVER}.key'}",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=Node,RBAC",
        f"--admission-control-config-file={files.admission}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.service_account_key}",
        f"--service-account-signing-key-file={files.service_account_key}",
        # Nodes are on this machine and reachable by address only: pod logs come through here.
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        *_audit(files),
    ]


def _audit(files: StateFiles) -> list[str]:
    if not files.audit_policy.exists():
        return []
    return [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]


def _controller_manager(binaries: Binaries, ports: Ports, files: StateFiles) -> list[str]:
    return [
        binaries.path(CONTROLLER_MANAGER),
        f"--kubeconfig={files.controller_manager_kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        f"--tls-cert-file={files.pki / f'{CONTROLLER_MANAGER}.crt'}",
        f"--tls-private-key-file={files.pki / f'{CONTROLLER_MANAGER}.key'}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.service_account_key}",
        f"--root-ca-file={files.pki / 'ca.crt'}",
    ]
