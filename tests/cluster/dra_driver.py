"""Kubernetes' DRA test driver beside the kubelets of the nodes, and what it offers.

The driver publishes devices without attributes. It prepares every device of its name, so a test may publish others: the
possible slices of a GPU.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.test_path_on_nodes import KUBECONFIG
from tests.operator.kubectl import Json, Kubectl

from partita_devtools.machine.processes import ProcessIdentity, is_running, spawn, stop_all
from partita_devtools.nodes.cluster import load_nodes

PROGRAM_VARIABLE = "DRA_TEST_DRIVER"
"""Environment variable with the path of the program, test/e2e/dra/test-driver of k8s.io/kubernetes."""
SUITE = "dra"
"""Label of the pools."""
SLICES_OF_A_GPU = 8
"""Memory slices of a GPU that is cut by MIG."""
PROFILES = {"1g": (7, 1), "3g": (2, 4)}
"""How many slices of each profile a GPU may have, and the memory slices that each takes."""
_CDI = Path("/var/run/cdi")
"""Where the nodes' containerds read what a device brings into a container."""


@dataclass(frozen=True)
class DraDriver:
    """A driver by its name, which is also that of its DeviceClass."""

    name: str
    kubectl: Kubectl
    directory: Path
    """Of its logs."""
    running: dict[str, ProcessIdentity] = field(default_factory=dict)
    """By node."""

    def create_class(self) -> None:
        """Create the DeviceClass."""
        selectors = [{"cel": {"expression": f'device.driver == "{self.name}"'}}]
        self._apply("DeviceClass", self.name, {"selectors": selectors})

    def delete_class(self) -> None:
        """Delete the DeviceClass."""
        self.kubectl("delete", "deviceclass", self.name, "--ignore-not-found")

    def start(self, node: str, devices: int) -> None:
        """Offer so many devices on the node."""
        cluster = load_nodes(KUBECONFIG.parent)
        assert cluster is not None
        (kubelet,) = [found.directory / "kubelet" for found in cluster.nodes if found.name == node]
        (kubelet / "plugins" / self.name).mkdir(parents=True, exist_ok=True)  # the driver does not make it
        argv = [
            os.environ[PROGRAM_VARIABLE],
            "kubelet-plugin",
            f"--kubeconfig={KUBECONFIG}",
            f"--drivername={self.name}",
            f"--node-name={node}",
            f"--num-devices={devices}",
            f"--plugin-registration-path={kubelet / 'plugins_registry'}",
            f"--datadir={kubelet / 'plugins'}",
            f"--cdi-dir={_CDI}",
        ]
        log = self.directory / f"{self.name}-{node}.log"
        self.running[node] = spawn(argv, log=log, dies_with_parent=True)
        assert is_running(self.running[node]), log.read_text()[-2000:]

    def stop(self) -> None:
        """End all its processes, as an upgrade of a driver does. Kubelets forget its devices after half a minute."""
        stop_all(list(self.running.values()))
        self.running.clear()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The driver does not answer for the duration of a `with` block."""
        for process in self.running.values():
            os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self.running.values():
                os.kill(process.pid, signal.SIGCONT)

    def publish_gpu(self, node: str) -> None:
        """Publish a GPU of the node that MIG cuts when its slices are claimed: they share the GPU's memory slices.

        The slices belong to no node as a whole, because the driver removes what it has not published for its node.
        """
        pool = {"name": f"{self.name}-{node}", "generation": 1, "resourceSliceCount": 2}
        common = {"driver": self.name, "pool": pool, "perDeviceNodeSelection": True}
        counters = {"memory-slices": {"value": str(SLICES_OF_A_GPU)}}
        shared = [{"name": "gpu-0", "counters": counters}]
        slices = [
            {
                "name": f"gpu-0-{profile}-{at}",
                "nodeName": node,
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory-slices": {"value": str(taken)}}}],
            }
            for profile, (count, taken) in PROFILES.items()
            for at in range(count)
        ]
        self._apply("ResourceSlice", f"{self.name}-counters", {**common, "sharedCounters": shared})
        self._apply("ResourceSlice", f"{self.name}-slices", {**common, "devices": slices})

    def pool(self, name: str, **attributes: str) -> Json:
        """The manifest of a pool of the driver's devices with these attributes."""
        devices = {"deviceClassName": self.name, "attributes": attributes}
        meta = {"name": name, "labels": {"suite": SUITE}}
        spec = {"pricePerHour": "1", "devices": devices}
        return {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": meta, "spec": spec}

    def take(self, devices: int, expression: str = "true") -> None:
        """Let a pod of another user claim so many devices, and wait until it runs."""
        exactly = {
            "deviceClassName": self.name,
            "count": devices,
            "selectors": [{"cel": {"expression": expression}}],
        }
        self._apply("ResourceClaim", "others", {"devices": {"requests": [{"name": "all", "exactly": exactly}]}})
        claim = {"name": "all", "resourceClaimName": "others"}
        container = {"name": "pause", "image": "partita.dev/pause:1", "resources": {"claims": [{"name": "all"}]}}
        spec = {"resourceClaims": [claim], "containers": [container], "terminationGracePeriodSeconds": 0}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "others"}, "spec": spec})
        self.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "pod/others")

    def give_back(self) -> None:
        """Delete that pod and its claim."""
        self.kubectl("delete", "pod/others", "resourceclaim/others", "--timeout=120s", "--ignore-not-found")

    def remove(self) -> None:
        """Remove all that it has made."""
        self.give_back()
        self.stop()
        self.delete_class()
        for offered in self.kubectl.list("resourceslices"):
            if offered["spec"]["driver"] == self.name:
                self.kubectl("delete", "resourceslice", offered["metadata"]["name"], "--ignore-not-found")
        for file in _CDI.glob(f"{self.name}-*.json"):
            file.unlink(missing_ok=True)

    def _apply(self, kind: str, name: str, spec: Json) -> None:
        document = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(document))


@contextmanager
def dra_driver(name: str, kubectl: Kubectl, directory: Path) -> Iterator[DraDriver]:
    """A driver for the duration of a `with` block, without a DeviceClass and without processes."""
    made = DraDriver(name, kubectl, directory)
    try:
        yield made
    finally:
        made.remove()
