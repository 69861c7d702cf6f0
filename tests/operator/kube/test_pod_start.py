"""Why pods do not start: image, Secret, ConfigMap, claim; in runs, and as remarks on sessions."""

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
UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def pod(reason: str = "", message: str = "", *, unplaced: str = "", placed_for: float = 300, pool: str = "t4") -> Json:
    """A pod whose container waits for a reason, or that has no node."""
    since = (NOW - timedelta(seconds=placed_for)).strftime("%Y-%m-%dT%H:%M:%SZ")
    placed = {"status": "False", "message": unplaced} if unplaced else {"status": "True", "lastTransitionTime": since}
    state = {"waiting": {"reason": reason, "message": message}} if reason else {"running": {}}
    return {
        "metadata": {"name": "p", "labels": {"partita.dev/pool": pool, "app.kubernetes.io/component": "worker"}},
        "spec": {"volumes": VOLUMES},
        "status": {
            "phase": "Pending" if reason or unplaced else "Running",
            "conditions": [{"type": "PodScheduled", **placed}],
            "containerStatuses": None if unplaced else [{"image": "registry/x:1", "state": state}],
        },
    }


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
    ],
)
def test_a_pod_without_a_known_problem_has_none(of: Json) -> None:
    assert start_problem(of, NOW) == ""


def test_a_problem_of_several_pods_of_a_pool_is_one_remark() -> None:
    broken = pod("ImagePullBackOff")

    remarks = [str(remark) for remark in pod_remarks([broken, pod(), broken, pod("ImagePullBackOff", pool="l4")], NOW)]

    assert [remark.partition(" do not start: ")[0] for remark in remarks] == ["Pods of pool t4", "Pods of pool l4"]
    assert all(remark.endswith(".") and ".." not in remark for remark in remarks)


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pod(unplaced=UNBOUND), "PersistentVolumeClaim compiled", id="claim"),
        pytest.param(pod("ContainerCreating"), ALL, id="objects of volumes"),
    ],
)
def test_a_profiling_run_reports_the_volumes_that_its_pod_waits_for(of: Json, want: str) -> None:
    run = unfinished_run(of, log="", now=NOW)

    assert run.phase is RunPhase.RUNNING
    assert want in run.message
