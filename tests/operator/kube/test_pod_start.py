"""Why pods do not start: image, Secret, ConfigMap, claims; in runs, and as remarks on sessions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from partita_operator.engines.kuberay.pod_remarks import pod_remarks
from partita_operator.pod_templates.start_problems import LATE_START_SECONDS, start_problem
from partita_operator.ports import RunPhase
from partita_operator.profiling.kubernetes_job import unfinished_run

Json = dict[str, Any]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
VOLUMES = [
    {"name": "cache", "persistentVolumeClaim": {"claimName": "compiled"}},
    {"name": "hub", "secret": {"secretName": "hub"}},
    {"name": "rest", "secret": {"secretName": "unneeded", "optional": True}},
    {"name": "both", "projected": {"sources": [{"secret": {"name": "key"}}, {"configMap": {"name": "config"}}]}},
]
ALL = "PersistentVolumeClaim compiled, Secret hub, Secret key, ConfigMap config"
UNALLOCATED = "0/4 nodes are available: 1 Insufficient cpu, 3 cannot allocate all claims."
NO_CLASS = "0/4 nodes are available: request accelerator: device class gpu.example.com does not exist."
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def pod(reason: str = "", message: str = "", *, unplaced: str = "", placed_for: float = 300, pool: str = "t4") -> Json:
    """A pod whose container waits for a reason, or that has no node."""
    since = (NOW - timedelta(seconds=placed_for)).strftime("%Y-%m-%dT%H:%M:%SZ")
    placed = {"status": "False", "message": unplaced} if unplaced else {"status": "True"}
    state = {"waiting": {"reason": reason, "message": message}} if reason else {"running": {}}
    return {
        "metadata": {"name": "p", "labels": {"partita.dev/pool": pool, "app.kubernetes.io/component": "worker"}},
        "spec": {"volumes": VOLUMES},
        "status": {
            "phase": "Pending" if reason or unplaced else "Running",
            "conditions": [{"type": "PodScheduled", "lastTransitionTime": since, **placed}],
            "containerStatuses": None if unplaced else [{"image": "registry/x:1", "state": state}],
        },
    }


def initialized(reason: str = "", message: str = "") -> Json:
    """A pod with an init container, as KubeRay makes workers, that waits for a reason, or runs."""
    made, init = pod("PodInitializing"), pod(reason, message)
    made["status"]["initContainerStatuses"] = init["status"]["containerStatuses"]
    return made


def of_functions(reason: str, message: str, last: str = "") -> Json:
    """A pod with a container for functions that waits for a reason, after an attempt that ended with `last`."""
    made = initialized(reason, message)
    (status,) = made["status"]["initContainerStatuses"]
    status["name"] = "functions-1"
    status["lastState"] = {"terminated": {"reason": "StartError", "message": last}} if last else {}
    return made


def claiming(*, unplaced: str = "", placed_for: float = 300, sandbox: bool = False) -> Json:
    """A pod without volumes that claims a device."""
    made = pod("" if unplaced else "PodInitializing", unplaced=unplaced, placed_for=placed_for)
    made["spec"] = {"nodeName": "l4"}
    status = made["status"]
    status["resourceClaimStatuses"] = [{"name": "accelerator", "resourceClaimName": "p-accelerator-x7"}]
    status["conditions"].append({"type": "PodReadyToStartContainers", "status": str(sandbox)})
    return made


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pod("ErrImagePull", "401 Unauthorized"), ["Image registry/x:1", "401 Unauthorized"], id="image"),
        pytest.param(pod("InvalidImageName"), ["Image registry/x:1", "(InvalidImageName)"], id="name of an image"),
        pytest.param(
            pod("CreateContainerConfigError", 'secret "hub" not found'),
            ['secret "hub" not found', "podTemplate"],
            id="Secret of a variable",
        ),
        pytest.param(pod(unplaced=UNBOUND), ["not bound", "PersistentVolumeClaim compiled"], id="claim"),
        pytest.param(pod("ContainerCreating"), [ALL], id="objects of volumes"),
        pytest.param(
            initialized("ImagePullBackOff", "401 Unauthorized"),
            ["Image registry/x:1", "401 Unauthorized"],
            id="image of an init container",
        ),
        pytest.param(
            initialized("CreateContainerConfigError", 'secret "hub" not found'),
            ['secret "hub" not found'],
            id="Secret of a variable of an init container",
        ),
        pytest.param(
            pod("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            ["Image registry/x:1 runs as root", "Set USER in the image"],
            id="user of an image",
        ),
        pytest.param(
            of_functions("ImagePullBackOff", "401 Unauthorized"),
            ["Image registry/x:1", "401 Unauthorized", "in the functions of the session"],
            id="image of functions",
        ),
        pytest.param(
            of_functions("CrashLoopBackOff", "back-off 10s", 'exec: "python3": executable file not found in $PATH'),
            ["Container functions-1 of image registry/x:1 does not run", '"python3": executable file', "with numpy"],
            id="image of functions without Python",
        ),
        pytest.param(
            of_functions("CrashLoopBackOff", "back-off 10s"),
            ["Container functions-1 of image registry/x:1 does not run", "back-off 10s"],
            id="container of functions that ends",
        ),
        pytest.param(
            of_functions("CreateContainerConfigError", 'secret "hub" not found'),
            ['secret "hub" not found', "podTemplate"],
            id="Secret of a variable of a container of functions",
        ),
        pytest.param(initialized("PodInitializing"), [ALL], id="objects of volumes of a pod with an init container"),
        pytest.param(
            claiming(unplaced=UNALLOCATED),
            ["ResourceClaim p-accelerator-x7 is not allocated", "3 cannot allocate all claims", "ResourceSlices"],
            id="device that is not free",
        ),
        pytest.param(
            claiming(unplaced=NO_CLASS),
            ["ResourceClaim p-accelerator-x7 is not allocated", "device class gpu.example.com does not exist"],
            id="DeviceClass that does not exist",
        ),
        pytest.param(
            claiming(),
            ["ResourceClaim p-accelerator-x7 is allocated", "node l4", "pod p"],
            id="device that is not prepared",
        ),
    ],
)
def test_the_problem_of_a_pod_names_what_is_missing(of: Json, want: list[str]) -> None:
    problem = start_problem(of, NOW)

    assert [words for words in want if words not in problem] == []


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(pod(), id="it runs"),
        pytest.param(pod("ContainerCreating", placed_for=LATE_START_SECONDS - 1), id="it has just been placed"),
        pytest.param(pod(unplaced="0/3 nodes are available: 3 Insufficient nvidia.com/gpu."), id="it waits for a GPU"),
        pytest.param({**pod("ContainerCreating"), "spec": {}}, id="it has no volumes, and pulls its image"),
        pytest.param({"metadata": {}, "spec": {}}, id="it is new"),
        pytest.param(initialized(), id="it waits for its init container"),
        pytest.param(claiming(unplaced="0/4 nodes are available: 4 Insufficient cpu."), id="it waits for a CPU"),
        pytest.param(claiming(placed_for=LATE_START_SECONDS - 1), id="its device has just been allocated"),
        pytest.param(claiming(sandbox=True), id="its device is prepared"),
    ],
)
def test_a_pod_without_a_known_problem_has_none(of: Json) -> None:
    assert start_problem(of, NOW) == ""


def test_the_lack_of_nodes_is_named_only_while_a_ray_cluster_is_replaced() -> None:
    late = pod(unplaced="0/4 nodes are available: 4 Insufficient cpu.")
    just_made = pod(unplaced="0/4 nodes are available: 4 Insufficient cpu.", placed_for=LATE_START_SECONDS - 1)

    (remark,) = pod_remarks([late], NOW, replaced=True)
    assert str(remark) == (
        "Pods of pool t4 do not start: No node takes one (0/4 nodes are available: 4 Insufficient cpu). Add nodes, or "
        "undo the last change of pods."
    )
    assert pod_remarks([late], NOW) == ()
    assert pod_remarks([just_made], NOW, replaced=True) == ()


def test_a_problem_of_several_pods_of_a_pool_is_one_remark() -> None:
    broken, other = pod("ImagePullBackOff"), claiming(unplaced=UNALLOCATED)
    pods = [broken, pod(), broken, pod("ImagePullBackOff", pool="l4"), other]

    remarks = [str(remark) for remark in pod_remarks(pods, NOW)]

    assert [remark.partition(" do not start: ")[0] for remark in remarks] == ["Pods of pool t4", "Pods of pool l4"]
    assert all(remark.endswith(".") and ".." not in remark for remark in remarks)


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pod(unplaced=UNBOUND), "PersistentVolumeClaim compiled", id="claim"),
        pytest.param(pod("ContainerCreating"), ALL, id="objects of volumes"),
        pytest.param(initialized("ErrImagePull", "401"), "ErrImagePull: 401", id="image of an init container"),
        pytest.param(claiming(unplaced=UNALLOCATED), "ResourceClaim p-accelerator-x7", id="device"),
    ],
)
def test_a_profiling_run_reports_the_objects_that_its_pod_waits_for(of: Json, want: str) -> None:
    run = unfinished_run(of, log="", now=NOW)

    assert (run.phase, run.waits) == (RunPhase.RUNNING, True)
    assert want in run.message
