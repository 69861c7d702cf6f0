"""What a RayService and its Ray cluster say of themselves, as the roll-out sees a Serve instance."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_operator.engines.kuberay.rayservice_manifest import applications_of
from partita_operator.engines.kuberay.worker_groups import NUMBERS, WorkerGroup
from partita_operator.engines.placement import Resources
from partita_operator.engines.serve_state import DELETING, AppConfig, Application, ServeState

NOT_STARTED: Final = "NOT_STARTED"
HEAD_SERVICE: Final = "{cluster}-head-svc"
"""KubeRay's name for the service of a Ray cluster's head."""
SERVE_SERVICE: Final = "{rayservice}-serve-svc"
"""KubeRay's name for the service of all proxies; it is there once all applications have been up at a time."""

Document = Mapping[str, Any]


def is_ready(rayservice: Document) -> bool:
    """Whether KubeRay says that requests can be answered."""
    return str(_condition(rayservice, "Ready").get("status")) == "True"


def standing(rayservice: Document) -> str:
    """What KubeRay is doing for a RayService, in words; empty if it serves."""
    meta = rayservice["metadata"]
    where = f"RayService {meta['namespace']}/{meta['name']}"
    ready, upgrade = _condition(rayservice, "Ready"), _condition(rayservice, "UpgradeInProgress")
    if not ready:
        return f"KubeRay has not taken up {where} yet; if it stays so, see whether KubeRay's operator runs."
    if upgrade.get("status") == "True":
        return f"KubeRay replaces the Ray cluster of {where}; the old one serves until the new one is up."
    if ready.get("status") == "True":
        return ""
    why = f"{ready.get('reason')}: {ready.get('message')}"
    if ready.get("reason") == "ValidationFailed":
        return f"KubeRay refuses {where} ({why}). Correct the operator's KubeRay settings."
    return (
        f"KubeRay brings up the Ray cluster of {where} ({why}). If it stays so, see its pods: "
        f"kubectl get pods -n {meta['namespace']} -l ray.io/is-ray-node=yes"
    )


def clusters(rayservice: Document) -> dict[str, str]:
    """The RayClusters of a RayService, the one that serves first, and the head service of each."""
    status = rayservice.get("status") or {}
    found: dict[str, str] = {}
    for part in (status.get("activeServiceStatus") or {}, status.get("pendingServiceStatus") or {}):
        if name := part.get("rayClusterName"):
            head = (part.get("rayClusterStatus") or {}).get("head") or {}
            found[name] = head.get("serviceName") or HEAD_SERVICE.format(cluster=name)
    return found


def told_state(rayservice: Document | None, seen: ServeState | None) -> ServeState:
    """What Serve is told to run by the RayService, and how that runs as far as it was `seen`.

    An application that was taken out of the RayService counts as being deleted for as long as Serve shows it.
    """
    told = applications_of(rayservice)
    running = dict(seen.applications) if seen else {}
    apps = {name: _gone(app) for name, app in running.items() if name not in told}
    for name, config in told.items():
        apps[name] = _told(config, running.get(name))
    return ServeState(running=seen is not None and seen.running, applications=apps)


def room(state: ServeState, pools: Iterable[GPUPool]) -> dict[str, float]:
    """Units of each resource that the namespace's Ray cluster could have: what runs now, and what is free.

    Ray clusters grow with their replicas, so that only accelerators are ever short; each brings its CPUs and its GPU.
    """
    placed: dict[str, float] = {}
    for app in state.applications.values():
        for deployment in app.deployments:
            count = sum(replica.placed for replica in deployment.replicas)
            for resource, units in deployment.resources.items():
                placed[resource] = placed.get(resource, 0.0) + units * count
    limits: dict[str, float] = dict.fromkeys(placed, inf) | {"CPU": inf, "GPU": inf}
    for pool in pools:
        in_reach = placed.get(pool.ray_resource, 0.0) + float(pool.status.free)
        limits[pool.ray_resource] = min(in_reach, float(pool.status.capacity))
    return limits


def unlimited(state: ServeState) -> Resources:
    """Room without an end for all resources that applications take: nodes come as they are needed."""
    return {
        resource: inf
        for app in state.applications.values()
        for deployment in app.deployments
        for resource in deployment.resources
    }


def scaling(cluster: Document, groups: Sequence[WorkerGroup]) -> list[dict[str, Any]]:
    """JSON patch operations that give a running RayCluster the pods that `groups` say; empty if it needs none.

    KubeRay does not hand numbers of pods down from a RayService to a cluster that runs. Pods are asked for at once;
    those that are not needed any more are left to Ray's autoscaler, which takes only ones without replicas, while
    KubeRay would take any.
    """
    wanted = {group["groupName"]: group["replicas"] for group in groups}
    operations = []
    for at, group in enumerate(cluster["spec"].get("workerGroupSpecs") or ()):
        pods = wanted.get(group["groupName"], 0)
        now = {field: group.get(field) for field in NUMBERS}
        replicas = max(now["replicas"] or 0, pods)
        for field, value in zip(NUMBERS, (replicas, pods, replicas), strict=True):
            if now[field] != value:
                path = f"/spec/workerGroupSpecs/{at}/{field}"
                operations.append({"op": "add", "path": path, "value": value})
    if not operations:
        return []
    # Otherwise a group might have moved, or the autoscaler might have changed it meanwhile.
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": cluster["metadata"]["resourceVersion"]}
    return [version, *operations]


def _condition(rayservice: Document, type: str) -> Mapping[str, Any]:
    conditions = (rayservice.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type), {})


def _told(config: AppConfig, running: Application | None) -> Application:
    return Application(
        name=config["name"],
        status=running.status if running else NOT_STARTED,
        message=running.message if running else "",
        deployed=running.deployed if running else 0.0,
        declarative=True,
        config=config,
        deployments=running.deployments if running else (),
    )


def _gone(app: Application) -> Application:
    return Application(app.name, DELETING, app.message, app.deployed, app.declarative, None, app.deployments)
