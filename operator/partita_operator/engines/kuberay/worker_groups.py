"""Worker groups of a RayService, their order, and the number of pods that each needs.

KubeRay replaces the whole Ray cluster after almost any change of its worker groups. Exceptions are the numbers of
pods, and groups that are appended. So a group keeps its place, a new one is appended, and a group that is not needed
any more has no pods, until the cluster is replaced for another reason.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.meta import GROUP, NAME_PATTERN, POOL_LABEL
from partita_api.pool.ray_resource import digest_of, shared_resource, with_digest
from partita_operator.engines.app_config import AppConfig, demand_of
from partita_operator.engines.kuberay.probes import HTTP_PORT, head_probes, worker_probes
from partita_operator.kube.pods import (
    SCRATCH,
    accelerator_claims,
    accelerator_limits,
    accelerator_placement,
    mps_daemon,
    restricted_container,
    restricted_pod,
)
from partita_operator.pod_templates.frontend_pods import NOTHING_ADDED, FrontendPods
from partita_operator.pod_templates.manifest import with_template
from partita_operator.settings.kuberay import KubeRaySettings, RayPods
from partita_runtime.serving.deploy.names import PRELOADED
from partita_runtime.serving.deploy.stage_arguments import has_gpus

FRONTENDS: Final = "frontends"
"""Name of the group that runs only frontends."""
TEMPLATE_LABEL: Final = f"{GROUP}/pod-template"
"""On pods with a session's pod template, or with what only its frontends have: what identifies it."""
FRONTEND_RESOURCE: Final = "partita-frontend"
"""The Ray resource of frontends; each takes one unit."""
NUMBERS: Final = ("replicas", "minReplicas", "maxReplicas")
"""Fields of a group that change without a new cluster."""
_MOST_NAME_CHARACTERS: Final = 40
"""Limit of a group's name: KubeRay derives names of pods and values of labels from it."""
_MOST_START_SECONDS: Final = 180
"""How long a raylet may take to start before its pod ends; with half a CPU on a busy node, 30 s are too few."""
_ROUNDING: Final = 1e-6
_UNLIMITED: Final = 2**31 - 1

WorkerGroup = Mapping[str, Any]
"""One item of a RayCluster's workerGroupSpecs."""


@dataclass(frozen=True)
class PodCapacity:
    """The Ray resource of one pod of a group."""

    resource: str
    units: float

    @property
    def shared(self) -> str:
        """The resource that groups with different pod templates take from together."""
        return shared_resource(self.resource)


@dataclass(frozen=True)
class SessionPods:
    """What the pods of a session are made from."""

    pools: Collection[GPUPool] = ()
    frontends: FrontendPods = NOTHING_ADDED
    awaited: Sequence[AppConfig] = ()
    """Applications that the roll-out writes later, and whose pods start now."""
    departing_nodes: Collection[str] = ()
    """Nodes whose pods are about to end."""


def frontend_group(settings: KubeRaySettings, pods: FrontendPods = NOTHING_ADDED) -> WorkerGroup:
    """The group of frontends: of all sessions, or of those whose frontends need the same `pods`."""
    digest = pods.digest
    offered = PodCapacity(with_digest(FRONTEND_RESOURCE, digest), settings.frontends_per_pod)
    labels = {"app.kubernetes.io/component": "frontend", **_template_label(digest)}
    template = _template(settings, settings.frontends, labels, {}, {})
    (container,) = template["spec"]["containers"]
    container["env"] += [{"name": name, "value": value} for name, value in PRELOADED.items()]
    return _group(
        frontend_group_name(digest),
        offered,
        pods.added_to(template, settings.function_resources),
        gpus=0,
        most=_UNLIMITED,
    )


def frontend_group_name(digest: str) -> str:
    """The name of the group of frontends whose pods have this digest."""
    return f"{FRONTENDS}-{digest}" if digest else FRONTENDS


def pool_group(pool: GPUPool, settings: KubeRaySettings, most: int) -> WorkerGroup:
    """The group of the pool's accelerators with their present slices: one accelerator in each pod.

    It has at `most` so many pods, together with groups of the same pool that have other pod templates.
    """
    labels = {"app.kubernetes.io/component": "worker", POOL_LABEL: pool.metadata.name}
    template = _template(
        settings,
        settings.workers,
        {**labels, **_template_label(digest_of(pool.ray_resource))},
        accelerator_limits(pool),
        accelerator_placement(pool),
    )
    environment, mps = mps_daemon(pool)
    (container,) = template["spec"]["containers"]
    container["env"] += environment
    container["resources"] |= accelerator_claims(pool)
    container |= mps
    pod = with_template(template, pool.spec.pod_template)
    return _group(group_name(pool), PodCapacity(pool.ray_resource, 1), pod, int(has_gpus(pool)), most)


def group_name(pool: GPUPool) -> str:
    """The name of a pool's group: the pool and its slice type, such as t4-gpu or a100-mig-1g-5gb.

    With a session's pod template, what identifies the template follows, such as t4-gpu-3f9a0c51.
    """
    slice_type = pool.accelerator_name.rsplit("/", 1)[-1].replace(".", "-")
    template = digest_of(pool.ray_resource)
    name, end = f"{pool.metadata.name}-{slice_type}", f"-{template}" if template else ""
    if len(name + end) <= _MOST_NAME_CHARACTERS and re.fullmatch(NAME_PATTERN, name):
        return name + end
    suffix = sha256(f"{pool.metadata.name}/{pool.accelerator_name}".encode()).hexdigest()[:6]
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[: _MOST_NAME_CHARACTERS - 7 - len(end)].strip("-")
    return f"{readable}-{suffix}{end}"


def _template_label(digest: str) -> dict[str, str]:
    return {TEMPLATE_LABEL: digest} if digest else {}


def merged(present: Sequence[WorkerGroup], desired: Sequence[WorkerGroup]) -> list[WorkerGroup]:
    """The present groups in their order, updated from the desired ones, then the new ones.

    A present group that is not updated keeps its most pods, so it does not grow.
    """
    by_name = {group["groupName"]: group for group in desired}
    known = {group["groupName"] for group in present}
    kept = [by_name.get(group["groupName"], group) for group in present]
    return [*kept, *(group for name, group in by_name.items() if name not in known)]


def sized(
    groups: Sequence[WorkerGroup], applications: Iterable[AppConfig], desired: Sequence[WorkerGroup] = ()
) -> list[WorkerGroup]:
    """The groups with as many pods as the applications need, within `maxReplicas` of each.

    If several groups offer the same resource, because the slices of a pool changed, only the last one has pods. Groups
    that share a pool have together at most as many pods as the `desired` one of them may have. The others come first,
    because their pods run.
    """
    needed = pods_needed(groups, applications)
    room = {pod_capacity(group).shared: group["maxReplicas"] for group in desired}
    updated = {group["groupName"] for group in desired}
    pods: dict[str, int] = {}
    for group in sorted(groups, key=lambda group: group["groupName"] in updated):
        name, shared = group["groupName"], pod_capacity(group).shared
        pods[name] = max(0, min(needed[name], group["maxReplicas"], room.get(shared, _UNLIMITED)))
        if shared in room:
            room[shared] -= pods[name]
    return [{**group, **dict.fromkeys(NUMBERS, pods[group["groupName"]])} for group in groups]


def pods_needed(groups: Sequence[WorkerGroup], applications: Iterable[AppConfig]) -> dict[str, int]:
    """Number of pods by group, without limits. Replicas with different shares get different accelerators."""
    taken: dict[str, dict[float, int]] = {}
    for app in applications:
        demand = demand_of(app)
        for resource, share in demand.each.items():
            shares = taken.setdefault(resource, {})
            shares[share] = shares.get(share, 0) + demand.replicas
    pods = {group["groupName"]: 0 for group in groups}
    last = {pod_capacity(group).resource: group for group in groups}
    for resource, group in last.items():
        units = pod_capacity(group).units
        # Whole replicas on one pod: two of 0.4 on 1, not two and a half.
        per_pod = {share: max(1, int(units / share + _ROUNDING)) for share in taken.get(resource, {})}
        pods[group["groupName"]] = sum(
            ceil(replicas / per_pod[share]) for share, replicas in taken.get(resource, {}).items()
        )
    return pods


def pod_capacity(group: WorkerGroup) -> PodCapacity:
    """The Ray resource of a pod of the group, read from its Ray start parameters."""
    ((resource, units),) = json.loads(json.loads(group["rayStartParams"]["resources"])).items()
    return PodCapacity(resource, units)


def head_group(settings: KubeRaySettings) -> dict[str, Any]:
    """The head, as long as all its containers may use the API server. Ray places no replicas on it."""
    template = _template(settings, settings.head, {"app.kubernetes.io/component": "head"}, {}, {})
    del template["spec"]["automountServiceAccountToken"]
    (container,) = template["spec"]["containers"]
    container |= {"name": "ray-head", **head_probes()}
    container["ports"] = [
        {"name": name, "containerPort": port}
        for name, port in (("gcs-server", 6379), ("dashboard", 8265), ("client", 10001), ("serve", HTTP_PORT))
    ]
    return {"rayStartParams": {"dashboard-host": "0.0.0.0", "num-cpus": "0", "num-gpus": "0"}, "template": template}


def _group(name: str, offered: PodCapacity, template: dict[str, Any], gpus: int, most: int) -> WorkerGroup:
    # KubeRay puts the value into a shell command, so it must be a quoted string that contains JSON.
    resources = json.dumps(json.dumps({offered.resource: offered.units}))
    return {
        "groupName": name,
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": most,
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
            **({"resourceClaims": placement["resourceClaims"]} if "resourceClaims" in placement else {}),
            **({"imagePullSecrets": secrets} if secrets else {}),
            "containers": [
                {
                    "name": "ray-worker",
                    "image": settings.image,
                    "env": [
                        {"name": "HOME", "value": SCRATCH},
                        {"name": "RAY_raylet_start_wait_time_s", "value": str(_MOST_START_SECONDS)},
                    ],
                    "resources": {"requests": resources, "limits": resources},
                    "securityContext": restricted_container(),
                    "volumeMounts": [{"name": "scratch", "mountPath": SCRATCH}],
                    **worker_probes(),
                }
            ],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }
