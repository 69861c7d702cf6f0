"""Nodes cut into MIG slices on a real API server: a double of mig-manager sets its labels."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner
from tests.docs.pages import pasted
from tests.docs.shell import Shell
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, condition, eventually, pool, reason
from tests.operator.mig_manager_double import MigManagerDouble

from partita_operator.cli.main import main
from partita_operator.reconcile.pool.gpu_labels import CUT_AS, DRAINING, MIG_CONFIG, MIG_STATE
from partita_operator.reconcile.world import Node
from partita_operator.settings.mig import MigSettings
from partita_planner.mig.mig_parted import parse

pytestmark = pytest.mark.apiserver

MIG = {
    "product": "H100-80GB",
    "gpusPerNode": 2,
    "layouts": [{"nodes": 2, "gpus": [{"count": 2, "slices": {"1g.10gb": 5, "2g.20gb": 1}}]}],
}


@dataclass
class Fleet:
    """Two nodes with two H100 each, one node of another owner, and mig-manager on all of them."""

    kubectl: Kubectl
    name: str = field(default_factory=lambda: f"fleet-{uuid4().hex[:6]}")
    mig_manager: MigManagerDouble = field(default_factory=MigManagerDouble)
    most_drained: int = 0

    @property
    def nodes(self) -> list[str]:
        return [f"{self.name}-{each}" for each in "ab"]

    @property
    def stranger(self) -> str:
        return f"{self.name}-other"

    def create(self) -> None:
        labels = {
            "gpus": self.name,
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/mig.capable": "true",
            MIG_CONFIG: "all-disabled",
            MIG_STATE: "success",
        }
        for name in (*self.nodes, self.stranger):
            mine = {**labels, "gpus": "others"} if name == self.stranger else labels
            meta = {"name": name, "labels": mine}
            # The GPU Operator labels nodes at the start.
            self.kubectl(
                "apply",
                "--server-side",
                "--field-manager=gpu-operator",
                "-f",
                "-",
                stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": meta}),
            )
            self._set_status(name, {"nvidia.com/gpu": 2}, first=True)

    def delete(self) -> None:
        self.kubectl("delete", "node", *self.nodes, self.stranger, "--ignore-not-found")

    def node(self, name: str) -> Json:
        found = self.kubectl.get("node", name)
        assert found is not None
        return found

    def look(self) -> None:
        """One pass of mig-manager over all nodes."""
        config_map = self.kubectl.get("configmap", "mig-parted")
        configurations = parse(config_map["data"]["config.yaml"]) if config_map else {}
        drained = 0
        for name in self.nodes:
            found = self.node(name)
            labels = found["metadata"]["labels"]
            drained += DRAINING in labels
            units = {k: int(v) for k, v in found["status"].get("allocatable", {}).items() if v.isdigit()}
            after = self.mig_manager.look(Node(name, True, units, labels), configurations)
            if after.allocatable != units:
                self._set_status(name, {**dict.fromkeys(units, 0), **after.allocatable})
            if after.labels != labels:
                state = f"{MIG_STATE}={after.labels[MIG_STATE]}"
                self.kubectl("label", "node", name, "--overwrite", "--field-manager=mig-manager", state)
        self.most_drained = max(self.most_drained, drained)

    @asynccontextmanager
    async def managed(self) -> AsyncIterator[None]:
        """Runs mig-manager in a `with` block."""

        async def go_on() -> None:
            while True:
                await asyncio.to_thread(self.look)
                await asyncio.sleep(0.1)

        running = asyncio.create_task(go_on())
        try:
            yield
            assert not running.done() or running.result() is None
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _set_status(self, name: str, units: dict[str, int], first: bool = False) -> None:
        texts = {key: str(value) for key, value in units.items()}
        status: dict[str, Any] = {"capacity": texts, "allocatable": texts}
        if first:
            status["conditions"] = [{"type": "Ready", "status": "True"}]
        patch = json.dumps({"status": status})
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def fleet(namespace: Kubectl) -> Iterator[Fleet]:
    made = Fleet(namespace)
    made.create()
    yield made
    made.delete()


def vision(fleet: Fleet, **mig: Any) -> Json:
    found = pool(
        fleet.name,
        count=None,
        nodeSelector={"matchLabels": {"gpus": fleet.name}},
        resourceName="nvidia.com/mig-1g.10gb",
        sharing={"mode": "MIG"},
        mig={**MIG, **mig},
    )
    del found["spec"]["emulation"]
    return found


def pod_on(node: str, name: str) -> Json:
    """A pod of a worker group; it exists only on the API server."""
    labels = {"partita.dev/pool": "whole", "app.kubernetes.io/component": "worker"}
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "ray-worker", "image": "none"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def owners(node: Json, label: str) -> set[str]:
    return {
        entry["manager"]
        for entry in node["metadata"]["managedFields"]
        if f"f:{label}" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
    }


async def test_nodes_are_cut_after_approval(namespace: Kubectl, operators: Operators, fleet: Fleet) -> None:
    settings = MigSettings(enabled=True, config_map="mig-parted", namespace=namespace.namespace, settle_seconds=0)
    operators.settings = operators.settings.model_copy(update={"mig": settings})
    # A new namespace gets its service account a moment later, and no pods before.
    namespace("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    namespace.apply(vision(fleet), pod_on(fleet.nodes[0], "worker"), pod_on(fleet.stranger, "elsewhere"))

    def seen() -> Json | None:
        return namespace.get("gpool", fleet.name)

    async with fleet.managed():
        async with operators.running():
            waiting = await eventually(seen, lambda p: reason(p, "Partitioned") == ("False", "AwaitingApproval"))
            assert waiting is not None
            assert waiting["status"]["partitioning"]["waitingNodes"] == fleet.nodes
            assert waiting["status"]["hardware"] == [
                {
                    "product": "NVIDIA-H100-80GB-HBM3",
                    "nodes": 2,
                    "gpusPerNode": 2,
                    "memory": "81559Mi",
                    "migCapable": True,
                }
            ]
            assert {fleet.node(n)["metadata"]["labels"][MIG_CONFIG] for n in fleet.nodes} == {"all-disabled"}
            result = await asyncio.to_thread(
                CliRunner().invoke,
                main,
                ["approve", f"gpool/{fleet.name}", "--kubeconfig", str(namespace.kubeconfig)],
            )
            assert result.exit_code == 0, result.output
            await eventually(seen, lambda p: (p or {})["status"]["partitioning"]["readyNodes"] >= 1)
        # The operator is killed in the middle; the next one continues.
        async with operators.running():
            done = await eventually(seen, lambda p: reason(p, "Partitioned") == ("True", "Partitioned"))
            done = await eventually(seen, lambda p: reason(p) == ("True", "Available"))
            assert done is not None
            assert done["status"]["capacity"] == 2 * 2 * 5
            assert fleet.most_drained == 1
            assert [p["metadata"]["name"] for p in namespace.list("pods")] == ["elsewhere"]
            config = fleet.node(fleet.nodes[0])["metadata"]["labels"][MIG_CONFIG]
            text = namespace.run("get", "node", fleet.nodes[0], "-o", "json", "--show-managed-fields").stdout
            cut = json.loads(text)
            assert owners(cut, MIG_CONFIG) == owners(cut, CUT_AS) == {"partita"}
            assert owners(cut, MIG_STATE) == {"mig-manager"}
            assert DRAINING not in cut["metadata"]["labels"]

            await namespace.wait("label", "node", fleet.nodes[1], "--overwrite", f"{MIG_CONFIG}=all-disabled")
            changed = await eventually(seen, lambda p: reason(p, "Partitioned") == ("False", "LabelsChanged"))
            assert fleet.nodes[1] in condition(changed, "Partitioned")["message"]
            await eventually(
                lambda: fleet.node(fleet.nodes[1])["status"]["allocatable"],
                lambda units: units["nvidia.com/gpu"] == "2",
            )
            labels = {n: fleet.node(n)["metadata"]["labels"] for n in fleet.nodes}
            assert [labels[n][MIG_CONFIG] for n in fleet.nodes] == [config, "all-disabled"]
    others = namespace("get", "node", fleet.stranger, "-o", "json", "--show-managed-fields")
    writers = {entry["manager"] for entry in json.loads(others)["metadata"]["managedFields"]}
    assert writers.isdisjoint({"partita", "mig-manager"}), "nodes of others do not change"


async def test_a_node_that_fails_stops_the_others(namespace: Kubectl, operators: Operators, fleet: Fleet) -> None:
    settings = MigSettings(enabled=True, config_map="mig-parted", namespace=namespace.namespace, settle_seconds=0)
    operators.settings = operators.settings.model_copy(update={"mig": settings})
    fleet.mig_manager.fails.add(fleet.nodes[0])
    namespace.apply(vision(fleet, approval="Automatic"))

    async with fleet.managed(), operators.running():
        failed = await eventually(
            lambda: namespace.get("gpool", fleet.name),
            lambda p: reason(p, "Partitioned") == ("False", "PartitioningFailed"),
        )
        assert f"mig-manager failed on {fleet.nodes[0]}" in condition(failed, "Partitioned")["message"]
        assert condition(failed, "Stalled")["status"] == "True"
        labels = fleet.node(fleet.nodes[1])["metadata"]["labels"]
        assert labels[MIG_CONFIG] == "all-disabled"
        assert DRAINING not in labels


async def test_the_page_on_pools_of_slices(
    namespace: Kubectl, operators: Operators, fleet: Fleet, tmp_path: Path
) -> None:
    """Its commands, up to the approval, after which the operator begins."""
    settings = MigSettings(enabled=True, config_map="mig-parted", namespace=namespace.namespace, settle_seconds=0)
    operators.settings = operators.settings.model_copy(update={"mig": settings})
    demand = "product: H100-80GB\nfleet: vision\ngpusPerNode: 2\nslices: {1g.10gb: 7}\n"
    (tmp_path / "demand.yaml").write_text(demand)
    (commands,) = pasted("docs/tasks/gpus.md")
    *make_pools, approve = commands.replace("DIR", "layouts").replace("NODE", fleet.nodes[0]).splitlines()
    reader = Shell(tmp_path, namespace.kubeconfig)
    name = "vision-1g-10gb"

    def seen() -> Json | None:
        return namespace.get("gpool", name)

    try:
        async with fleet.managed(), operators.running():
            await asyncio.to_thread(reader.paste, "\n".join(make_pools))
            await eventually(seen, lambda found: reason(found, "Partitioned") == ("False", "AwaitingApproval"))
            await asyncio.to_thread(reader.paste, approve)
            await eventually(seen, lambda found: reason(found, "Partitioned") == ("True", "Partitioned"))
    finally:
        namespace.run("patch", "gpool", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        namespace("delete", "gpool", name, "--ignore-not-found", "--wait=false")
