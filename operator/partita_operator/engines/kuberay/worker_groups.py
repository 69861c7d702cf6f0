"""Worker groups of a RayService: which there are, in which order, and how many pods each needs.

KubeRay replaces a whole Ray cluster for almost any change of its worker groups. It does not for a change of their
numbers of pods, and for groups that come behind the others. So a group stays where it is for ever, a new one is put
at the end, and one that is not needed any more has no pods.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.meta import GROUP, NAME_PATTERN, POOL_LABEL
from partita_operator.engines.kuberay.settings import KubeRaySettings, RayPods
from partita_operator.engines.rollout import demand
from partita_operator.engines.serve_state import AppConfig
from partita_operator.kube.pods import (
    SCRATCH,
    accelerator_limits,
    accelerator_placement,
    mps_daemon,
    restricted_container,
    restricted_pod,
)
from partita_runtime.serving.deploy.names import PRELOADED
from partita_runtime.serving.deploy.stage_arguments import has_gpus

FRONTENDS: Final = "frontends"
"""Name of the group that runs frontends and no stage."""
FRONTEND_RESOURCE: Final = "partita-frontend"
"""The Ray resource that a frontend takes one of."""
NUMBERS: Final = ("replicas", "minReplicas", "maxReplicas")
"""Fields of a group that KubeRay takes no new cluster for."""
_MOST_NAME_CHARACTERS: Final = 40
"""Of a group's name; KubeRay makes names of pods and values of labels out of it."""
_ROUNDING: Final = 1e-6

WorkerGroup = Mapping[str, Any]
"""One item of a RayCluster's workerGroupSpecs."""


@dataclass(frozen=True)
class Capacity:
    """What one pod of a group offers to Ray."""

    resource: str
    units: float


def frontend_group(settings: KubeRaySettings) -> WorkerGroup:
    """The group for frontends."""
    offered = Capacity(FRONTEND_RESOURCE, settings.frontends_per_pod)
    template = _template(settings, settings.frontends, {"app.kubernetes.io/component": "frontend"}, {}, {})
    (container,) = template["spec"]["containers"]
    container["env"] += [{"name": name, "value": value} for name, value in PRELOADED.items()]
    return _group(FRONTENDS, offered, template, gpus=0)


def pool_group(pool: GPUPool, settings: KubeRaySettings) -> WorkerGroup:
    """The group for the pool's accelerators as they are sliced now, one to a pod."""
    template = _template(
        settings,
        settings.workers,
        {"app.kubernetes.io/component": "worker", POOL_LABEL: pool.metadata.name},
        accelerator_limits(pool),
        accelerator_placement(pool),
    )
    environment, mps = mps_daemon(pool)
    (container,) = template["spec"]["containers"]
    container["env"] += environment
    container |= mps
    return _group(group_name(pool), Capacity(pool.ray_resource, 1), template, gpus=int(has_gpus(pool)))


def group_name(pool: GPUPool) -> str:
    """The name of a pool's group: of the pool and its slice type, such as t4-gpu or a100-mig-1g-5gb."""
    slice_type = pool.spec.resource_name.rsplit("/", 1)[-1].replace(".", "-")
    name = f"{pool.metadata.name}-{slice_type}"
    if len(name) <= _MOST_NAME_CHARACTERS and re.fullmatch(NAME_PATTERN, name):
        return name
    told_apart = sha256(f"{pool.metadata.name}/{pool.spec.resource_name}".encode()).hexdigest()[:6]
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[: _MOST_NAME_CHARACTERS - 7].strip("-")
    return f"{readable}-{told_apart}"


def merged(present: Sequence[WorkerGroup], wanted: Sequence[WorkerGroup]) -> list[WorkerGroup]:
    """The present groups in their order, those that are wanted as they are wanted, and then the new ones."""
    by_name = {group["groupName"]: group for group in wanted}
    known = {group["groupName"] for group in present}
    kept = [by_name.get(group["groupName"], group) for group in present]
    return [*kept, *(group for name, group in by_name.items() if name not in known)]


def sized(groups: Sequence[WorkerGroup], applications: Iterable[AppConfig]) -> list[WorkerGroup]:
    """The groups with as many pods as the applications need.

    Of several groups that offer the same resource, since a pool was sliced anew, only the last one has any.
    """
    needed = pods_needed(groups, applications)
    return [{**group, **dict.fromkeys(NUMBERS, needed[group["groupName"]])} for group in groups]


def pods_needed(groups: Sequence[WorkerGroup], applications: Iterable[AppConfig]) -> dict[str, int]:
    """Pods that each group needs, by its name. Replicas of different shares are never put on one accelerator."""
    taken: dict[str, dict[float, int]] = {}
    for app in applications:
        wanted = demand(app)
        for resource, share in wanted.each.items():
            shares = taken.setdefault(resource, {})
            shares[share] = shares.get(share, 0) + wanted.replicas
    pods = {group["groupName"]: 0 for group in groups}
    last = {capacity(group).resource: group for group in groups}
    for resource, group in last.items():
        units = capacity(group).units
        # How many replicas fit on one pod, in whole replicas: two of 0.4 on 1, not two and a half.
        per_pod = {share: max(1, int(units / share + _ROUNDING)) for share in taken.get(resource, {})}
        pods[group["groupName"]] = sum(
            ceil(replicas / per_pod[share]) for share, replicas in taken.get(resource, {}).items()
        )
    return pods


def capacity(group: WorkerGroup) -> Capacity:
    """What a pod of the group offers, read back from its Ray start parameters."""
    ((resource, units),) = json.loads(json.loads(group["rayStartParams"]["resources"])).items()
    return Capacity(resource, units)


def head_group(settings: KubeRaySettings) -> dict[str, Any]:
    """The head, on which Ray places nothing: it may speak to the API server, for it runs Ray's autoscaler."""
    template = _template(settings, settings.head, {"app.kubernetes.io/component": "head"}, {}, {})
    del template["spec"]["automountServiceAccountToken"]
    (container,) = template["spec"]["containers"]
    container["name"] = "ray-head"
    container["ports"] = [
        {"name": name, "containerPort": port}
        for name, port in (("gcs-server", 6379), ("dashboard", 8265), ("client", 10001), ("serve", 8000))
    ]
    return {"rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0", "num-gpus": "0"}, "template": template}


def _group(name: str, offered: Capacity, template: dict[str, Any], gpus: int) -> WorkerGroup:
    # KubeRay puts the value into a shell command, so that it wants JSON inside of a quoted string.
    resources = json.dumps(json.dumps({offered.resource: offered.units}))
    return {
        "groupName": name,
        **dict.fromkeys(NUMBERS, 0),
        "rayStartParams": {"num-gpus": str(gpus), "resources": resources},
        "template": template,
    }


def _template(
    settings: KubeRaySettings,
    pods: RayPods,
    labels: Mapping[str, str],
    accelerators: Mapping[str, str],
    placement: Mapping[str, Any],
) -> dict[str, Any]:
    resources = {**pods.resources, **accelerators}
    nodes = {**placement.get("nodeSelector", {}), **pods.node_selector}
    tolerations = [*placement.get("tolerations", ()), *pods.tolerations]
    secrets = [{"name": name} for name in settings.image_pull_secrets]
    return {
        "metadata": {"labels": {"app.kubernetes.io/part-of": "partita", f"{GROUP}/serving": "kuberay", **labels}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": restricted_pod(),
            **({"nodeSelector": nodes} if nodes else {}),
            **({"affinity": placement["affinity"]} if "affinity" in placement else {}),
            **({"tolerations": tolerations} if tolerations else {}),
            **({"imagePullSecrets": secrets} if secrets else {}),
            "containers": [
                {
                    "name": "ray-worker",
                    "image": settings.image,
                    "env": [{"name": "HOME", "value": SCRATCH}],
                    "resources": {"requests": resources, "limits": resources},
                    "securityContext": restricted_container(),
                    "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
                }
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }
