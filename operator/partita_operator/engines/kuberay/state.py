"""The status of a RayService and its Ray cluster, in the form that the roll-out uses. Pure."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from partita_api.gpupool import GPUPool
from partita_api.pool.ray_resource import shared_resource
from partita_operator.engines.app_config import AppConfig
from partita_operator.engines.kuberay.rayservice_manifest import applications_of
from partita_operator.engines.placement import Resources
from partita_operator.engines.serve_state import DELETING, ServeApplication, ServeState

NOT_STARTED: Final = "NOT_STARTED"
HEAD_SERVICE: Final = "{cluster}-head-svc"
"""KubeRay's name for the service of a Ray cluster's head."""
SERVE_SERVICE: Final = "{owner}-serve-svc"
"""KubeRay's name for the service of all proxies. It exists once all applications have run at the same time."""
INCREMENTAL: Final = "NewClusterWithIncrementalUpgrade"
"""KubeRay's upgrade strategy that moves the traffic of a Gateway in steps."""

Document = Mapping[str, Any]


def is_ready(rayservice: Document) -> bool:
    """Whether KubeRay says that requests can be answered."""
    return str(_condition(rayservice, "Ready").get("status")) == "True"


def is_replaced(rayservice: Document) -> bool:
    """Whether KubeRay moves the clients to another Ray cluster."""
    return str(_condition(rayservice, "UpgradeInProgress").get("status")) == "True"


def explanation(rayservice: Document) -> str:
    """What KubeRay does with a RayService, in words; empty if it serves."""
    meta = rayservice["metadata"]
    where = f"RayService {meta['namespace']}/{meta['name']}"
    ready = _condition(rayservice, "Ready")
    if not ready:
        return f"KubeRay has not processed {where} yet. If this lasts, check whether KubeRay's operator runs."
    if is_replaced(rayservice):
        return (
            f"KubeRay replaces the Ray cluster of {where}; the old one serves until the new one is up. Changes and "
            "deletions of sessions wait until then."
        )
    if ready.get("status") == "True":
        return ""
    why = f"{ready.get('reason')}: {ready.get('message')}"
    if ready.get("reason") == "ValidationFailed":
        return f"KubeRay refuses {where} ({why}). Correct kuberay in the values of the chart."
    return (
        f"KubeRay starts the Ray cluster of {where} ({why}). If this lasts, see its pods: "
        f"`kubectl get pods -n {meta['namespace']} -l ray.io/is-ray-node=yes`"
    )


def serving_cluster(rayservice: Document | None) -> str:
    """Name of the RayCluster that takes requests; empty if none does yet.

    In an incremental upgrade two take requests. The one with more of the Gateway's traffic is the one that stays.
    """
    active, pending = _parts(rayservice)
    if active.get("rayClusterName") and _traffic_percent(pending) > _traffic_percent(active):
        return str(pending["rayClusterName"])
    return str(active.get("rayClusterName") or "")


def cluster_of_clients(rayservice: Document | None) -> str:
    """Name of the RayCluster that takes requests, or will take the first ones; empty if there is none."""
    _, pending = _parts(rayservice)
    return serving_cluster(rayservice) or str(pending.get("rayClusterName") or "")


def clusters(rayservice: Document) -> dict[str, str]:
    """The head service of each RayCluster of a RayService, by name; the cluster that serves comes first."""
    found: dict[str, str] = {}
    for part in _parts(rayservice):
        if name := part.get("rayClusterName"):
            head = (part.get("rayClusterStatus") or {}).get("head") or {}
            found[name] = head.get("serviceName") or HEAD_SERVICE.format(cluster=name)
    serving = serving_cluster(rayservice)
    return dict(sorted(found.items(), key=lambda item: item[0] != serving))


def serve_service(rayservice: Document) -> str:
    """Name of KubeRay's Service for the proxies; with incremental upgrades each RayCluster has one of its own."""
    incremental = (rayservice["spec"].get("upgradeStrategy") or {}).get("type") == INCREMENTAL
    owner = serving_cluster(rayservice) if incremental else ""
    return SERVE_SERVICE.format(owner=owner or rayservice["metadata"]["name"])


def _parts(rayservice: Document | None) -> tuple[Document, Document]:
    """The status of the active and of the pending RayCluster."""
    status = (rayservice or {}).get("status") or {}
    return status.get("activeServiceStatus") or {}, status.get("pendingServiceStatus") or {}


def _traffic_percent(part: Document) -> int:
    return int(part.get("trafficRoutedPercent") or 0)


def configured_state(rayservice: Document | None, observed: ServeState | None) -> ServeState:
    """The applications of the RayService, with their `observed` status; None if Serve was not reached.

    An application that was removed from the RayService counts as being deleted while Serve still shows it.
    """
    configured = applications_of(rayservice)
    running = dict(observed.applications) if observed else {}
    apps = {name: _deleting(app) for name, app in running.items() if name not in configured}
    for name, config in configured.items():
        apps[name] = _application(config, running.get(name))
    return ServeState(running=observed is not None and observed.running, applications=apps)


def reachable_capacity(state: ServeState, pools: Iterable[GPUPool]) -> dict[str, float]:
    """Units of each resource that the namespace's Ray cluster can have: what runs now, and what is free.

    Ray clusters grow with their replicas, so only accelerators limit them. Each pod brings its CPUs and its GPU.
    """
    placed = state.placed_resources()
    limits: dict[str, float] = dict.fromkeys(placed, inf) | {"CPU": inf, "GPU": inf}
    for pool in pools:
        shared = shared_resource(pool.ray_resource)
        reachable = placed.get(shared, 0.0) + float(pool.status.free)
        limits[shared] = min(reachable, float(pool.status.capacity))
    return limits


def unlimited(state: ServeState) -> Resources:
    """Infinite capacity of all resources that applications take: the autoscaler adds nodes when they are needed."""
    return dict.fromkeys(state.resource_names, inf)


def _condition(rayservice: Document, type: str) -> Mapping[str, Any]:
    conditions = (rayservice.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type), {})


def _application(config: AppConfig, running: ServeApplication | None) -> ServeApplication:
    return ServeApplication(
        name=config["name"],
        status=running.status if running else NOT_STARTED,
        message=running.message if running else "",
        deployed=running.deployed if running else 0.0,
        declarative=True,
        config=config,
        deployments=running.deployments if running else (),
    )


def _deleting(app: ServeApplication) -> ServeApplication:
    return ServeApplication(app.name, DELETING, app.message, app.deployed, app.declarative, None, app.deployments)
