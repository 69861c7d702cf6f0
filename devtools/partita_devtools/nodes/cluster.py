"""A cluster of real nodes on this machine: control plane, scheduler, kube-proxy, DNS; a kubelet and containerd a node.

The state directory contains everything; `nodes.json` there records what was started. Needs root and Debian's packages
`runc`, `containernetworking-plugins`, `iptables`, `conntrack` and `busybox-static`.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from os import cpu_count, environ, geteuid
from pathlib import Path

import httpx

from partita_devtools.control_plane.binaries import Binaries, missing
from partita_devtools.control_plane.lifecycle import ControlPlane, load_control_plane, start_control_plane
from partita_devtools.control_plane.releases import COREDNS, NODE_PROGRAMS, PROXY, SCHEDULER
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import read_record, write_record
from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import Marker, ProcessIdentity, is_running, spawn, stop, stop_all
from partita_devtools.machine.programs import LoggedProgram
from partita_devtools.nodes import container_runtime, control_groups, dns, kubelet, network
from partita_devtools.nodes.debian_packages import NODE_PACKAGES, require_packages
from partita_devtools.nodes.node import GPU_RESOURCE, DevNode, NodeSpec

MARKER = Marker("PARTITA_DEV_NODES")
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class _StartedNodes:
    """What is recorded about the nodes."""

    nodes: tuple[NodeSpec, ...]
    processes: dict[str, ProcessIdentity] = field(default_factory=dict)
    """By program and node."""


@dataclass(frozen=True)
class NodeCluster:
    """A cluster that `start_nodes` started, identified by its state directory (an absolute path)."""

    state_dir: Path
    control_plane: ControlPlane
    nodes: tuple[DevNode, ...]

    def health(self) -> dict[str, str]:
        """For each program of the control plane and each node `ok`, or what is wrong."""
        ready = _readiness(self.control_plane)
        return {
            **self.control_plane.health(),
            **{f"node {node.name}": ready.get(node.name, "not registered") for node in self.nodes},
        }

    def import_image(self, archive: Path, report: Report) -> None:
        """Import the images of an archive (`docker save`, `buildah push docker-archive:`) into every node.

        As many nodes at a time as the machine has CPUs. Raises DevError if a node refuses it.
        """

        def import_into(node: DevNode) -> None:
            report(f"{node.name}: importing {archive.name}")
            container_runtime.import_image(node, self.control_plane.binaries, archive)

        with ThreadPoolExecutor(cpu_count()) as threads:
            list(threads.map(import_into, self.nodes))


def start_nodes(state_dir: Path, specs: Sequence[NodeSpec], *, binaries: Binaries, report: Report) -> NodeCluster:
    """Start the control plane and the nodes and wait until all are ready; a cluster that runs already is returned.

    Raises DevError with what is missing or the end of the log; nothing runs then.
    """
    _require(binaries)
    state_dir = state_dir.absolute()
    if (running := load_nodes(state_dir)) is not None and set(running.health().values()) == {"ok"}:
        return running
    stop_nodes(state_dir, report)
    nodes = _nodes(state_dir, specs)
    write_record(_record(state_dir), _StartedNodes(tuple(specs)))
    try:
        plane = start_control_plane(state_dir, binaries=binaries, report=report)
        cluster = NodeCluster(state_dir, plane, nodes)
        network.connect(nodes, int(plane.url.rpartition(":")[2]))
        _start_programs(cluster, binaries, report)
        _wait_until_ready(cluster)
        for node in nodes:
            _claim_gpus(plane, node)
    except BaseException:
        stop_nodes(state_dir, report)
        raise
    return cluster


def load_nodes(state_dir: Path) -> NodeCluster | None:
    """The cluster last started in `state_dir`, running or not; None if there never was one."""
    state_dir = state_dir.absolute()
    record, plane = read_record(_record(state_dir), _StartedNodes), load_control_plane(state_dir)
    if record is None or plane is None:
        return None
    return NodeCluster(state_dir, plane, _nodes(state_dir, record.nodes))


def stop_nodes(state_dir: Path, report: Report) -> None:
    """Stop what `start_nodes` started, with every pod; remove networks, mounts, control groups and data. Idempotent.

    Processes without a record are stopped, too.
    """
    state_dir = state_dir.absolute()
    record = read_record(_record(state_dir), _StartedNodes)
    if record is None and not MARKER.processes(state_dir):
        return
    specs = record.nodes if record is not None else [NodeSpec(path.name) for path in state_dir.glob("nodes/*")]
    processes = record.processes if record is not None else {}
    cluster = NodeCluster(state_dir, ControlPlane(state_dir), _nodes(state_dir, specs))
    report("stopping the nodes and their pods")
    _delete_pods(cluster, processes)
    stop(lambda: MARKER.processes(state_dir, processes.values()), grace_s=5.0)
    # Pods whose kubelet had ended already.
    stop(lambda: [process for node in cluster.nodes for process in control_groups.processes(node)], grace_s=0.0)
    cluster.control_plane.stop()
    _remove_service_rules(cluster)
    network.disconnect(cluster.nodes)
    for node in cluster.nodes:
        _unmount_below(node.directory)
        control_groups.remove(node)
    shutil.rmtree(state_dir)


def _delete_pods(cluster: NodeCluster, processes: Mapping[str, ProcessIdentity]) -> None:
    """Delete all pods through the API server, so that the kubelets remove their networks and volumes, too."""
    plane = cluster.control_plane
    # These two would create or place new pods meanwhile.
    stop_all([process for name, process in processes.items() if name == SCHEDULER])
    plane.stop_controller_manager()
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    try:
        with _client(plane) as client:
            while pods := client.get("/api/v1/pods").raise_for_status().json()["items"]:
                if time.monotonic() > deadline:
                    return
                for pod in pods:
                    if "deletionTimestamp" not in pod["metadata"]:
                        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                        client.delete(path, params={"gracePeriodSeconds": "1"})
                time.sleep(0.5)
    except (httpx.HTTPError, OSError, DevError):
        return  # The API server does not answer: the caller kills the processes.


def _require(binaries: Binaries) -> None:
    if geteuid() != 0:
        raise DevError("nodes need root, because they create network devices, control groups and mounts")
    require_packages(NODE_PACKAGES)
    if absent := missing(binaries.directory, NODE_PROGRAMS):
        raise DevError(
            f"{binaries.directory} has no {', '.join(absent)}. Copy the programs of kube-apiserver's version there"
        )


def _start_programs(cluster: NodeCluster, binaries: Binaries, report: Report) -> None:
    plane, directory = cluster.control_plane, cluster.state_dir
    scheduler_port, proxy_port, proxy_health, dns_health = free_ports(4)
    pause = directory / "pause.tar"
    container_runtime.write_pause_image(pause)
    _launch(
        cluster,
        SCHEDULER,
        [
            binaries.path(SCHEDULER),
            f"--kubeconfig={plane.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={scheduler_port}",
        ],
    )
    for node in cluster.nodes:
        report(f"starting node {node.name} (logs: {directory / 'logs'})")
        node.directory.mkdir(parents=True, exist_ok=True)
        control_groups.create(node)
        container_runtime.write_configuration(node)
        kubelet.write_configuration(node, dns.address(cluster.nodes))
        runtime = _with_own_logs(node, container_runtime.command(node, binaries))
        answers = partial(container_runtime.answers, node, binaries)
        process = _launch_until(cluster, f"{node.name}-containerd", runtime, answers)
        container_runtime.import_image(node, binaries, pause)
        beside_it = ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt"]
        _launch(cluster, f"{node.name}-kubelet", [*beside_it, *kubelet.command(node, binaries, plane.kubeconfig)])
    corefile = directory / "Corefile"
    dns.write_configuration(corefile, cluster.nodes, plane.kubeconfig, dns_health)
    ready = partial(_is_ready, f"http://127.0.0.1:{dns_health}/ready")
    _launch_until(cluster, COREDNS, dns.command(binaries, corefile), ready)
    # One is enough for all nodes, because they share the machine's rules.
    _launch(
        cluster,
        PROXY,
        [
            binaries.path(PROXY),
            f"--kubeconfig={plane.kubeconfig}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={network.POD_RANGE}",
            f"--hostname-override={cluster.nodes[0].name}",
            f"--metrics-bind-address=127.0.0.1:{proxy_port}",
            f"--healthz-bind-address=127.0.0.1:{proxy_health}",
            # Do not change the machine's limits.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ],
    )


def _with_own_logs(node: DevNode, argv: list[str]) -> list[str]:
    """`argv` in a mount namespace with a separate `/var/log`: kubelets would delete the logs of each other's pods."""
    logs = node.directory / "log"
    logs.mkdir(exist_ok=True)
    script = 'mount --bind "$1" /var/log && shift && exec "$@"'
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh", str(logs), *argv]


def _launch(cluster: NodeCluster, name: str, argv: list[str]) -> ProcessIdentity:
    process = spawn(argv, log=_log(cluster, name), environment={**environ, **MARKER.environment(cluster.state_dir)})
    if (record := read_record(_record(cluster.state_dir), _StartedNodes)) is not None:
        write_record(_record(cluster.state_dir), replace(record, processes={**record.processes, name: process}))
    return process


def _launch_until(cluster: NodeCluster, name: str, argv: list[str], answers: Callable[[], bool]) -> ProcessIdentity:
    """Start a program and wait until it answers. Raises DevError with the end of its log if it does not."""
    process = _launch(cluster, name, argv)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not answers():
        if not is_running(process) or time.monotonic() > deadline:
            raise DevError(_ending(cluster, name))
        time.sleep(0.2)
    return process


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _wait_until_ready(cluster: NodeCluster) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while late := _not_ready(cluster):
        if time.monotonic() > deadline:
            raise DevError(_ending(cluster, f"{late[0].name}-kubelet"))
        time.sleep(0.5)


def _not_ready(cluster: NodeCluster) -> list[DevNode]:
    ready = _readiness(cluster.control_plane)
    return [node for node in cluster.nodes if ready.get(node.name) != "ok"]


def _readiness(plane: ControlPlane) -> dict[str, str]:
    """For each registered node `ok`, or why its kubelet says that it is not ready."""
    try:
        with _client(plane) as client:
            items = client.get("/api/v1/nodes").raise_for_status().json()["items"]
    except httpx.HTTPError as error:
        return {"": str(error)}
    found: dict[str, str] = {}
    for item in items:
        conditions = {condition["type"]: condition for condition in item["status"].get("conditions", ())}
        ready = conditions.get("Ready", {"status": "Unknown", "message": "no condition yet"})
        found[item["metadata"]["name"]] = "ok" if ready["status"] == "True" else ready["message"]
    return found


def _claim_gpus(plane: ControlPlane, node: DevNode) -> None:
    """Add the GPUs to the node's capacity, as a device plugin would; the kubelet keeps unknown resources."""
    if node.spec.gpus:
        with _client(plane) as client:
            client.patch(
                f"/api/v1/nodes/{node.name}/status",
                json={"status": {"capacity": {GPU_RESOURCE: str(node.spec.gpus)}}},
                headers={"Content-Type": "application/merge-patch+json"},
            ).raise_for_status()


def _client(plane: ControlPlane) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(plane.authority.certificate))
    return httpx.Client(base_url=plane.url, headers={"Authorization": f"Bearer {plane.token}"}, verify=context)


def _remove_service_rules(cluster: NodeCluster) -> None:
    """Remove kube-proxy's rules."""
    if load_control_plane(cluster.state_dir) is not None:  # else nobody knows where the program is
        proxy = Path(cluster.control_plane.binaries.path(PROXY))
        if proxy.exists():
            subprocess.run([proxy, "--cleanup"], capture_output=True, check=False)
    network.remove_service_rules()


def _unmount_below(directory: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    points = [line.split()[1].encode().decode("unicode_escape") for line in mounts]
    for point in sorted((point for point in points if Path(point).is_relative_to(directory)), reverse=True):
        subprocess.run(["umount", "--lazy", point], capture_output=True, check=False)


def _ending(cluster: NodeCluster, name: str) -> str:
    return LoggedProgram(name, _log(cluster, name)).problem("did not start")


def _log(cluster: NodeCluster, name: str) -> Path:
    return cluster.state_dir / "logs" / f"{name}.log"


def _nodes(state_dir: Path, specs: Sequence[NodeSpec]) -> tuple[DevNode, ...]:
    return tuple(DevNode(spec, number, state_dir / "nodes" / spec.name) for number, spec in enumerate(specs, 1))


def _record(state_dir: Path) -> Path:
    return state_dir / "nodes.json"
