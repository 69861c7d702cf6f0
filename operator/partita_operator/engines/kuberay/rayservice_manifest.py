"""The RayService of a namespace. Pure, and always the same for the same applications and groups."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from partita_api.meta import GROUP
from partita_operator.engines.app_config import AppConfig
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.kuberay.authentication import (
    RayToken,
    may_wait_for_token,
    mounts_token_everywhere,
    with_authentication,
    with_certificate,
    with_token_for_autoscaler_only,
)
from partita_operator.engines.kuberay.comparison import is_replaced
from partita_operator.engines.kuberay.fault_tolerance import fault_tolerance
from partita_operator.engines.kuberay.pod_drain import groups_without_drain, with_drain
from partita_operator.engines.kuberay.probes import HTTP_PORT
from partita_operator.engines.kuberay.worker_groups import (
    NUMBERS,
    WorkerGroup,
    frontend_group,
    head_group,
    merged,
    sized,
)
from partita_operator.engines.serve_state import UnreadableConfigError
from partita_operator.kube.pods import restricted_container
from partita_operator.settings.kuberay import KubeRaySettings

Document = Mapping[str, Any]

API_VERSION: Final = "ray.io/v1"
NAME: Final = "partita"
"""Name of the RayService in each namespace."""
LABELS: Final = {"app.kubernetes.io/managed-by": "partita", f"{GROUP}/serving": "kuberay"}


def rayservice(
    namespace: str,
    applications: Iterable[AppConfig],
    session_groups: Sequence[WorkerGroup],
    present: Mapping[str, Any] | None,
    settings: KubeRaySettings,
    token: RayToken | None = None,
    *,
    awaited: Iterable[AppConfig] = (),
) -> dict[str, Any]:
    """The manifest, for server-side apply.

    `session_groups` are the worker groups of a session: of its pools, and of its frontends if they have a template. The
    groups of `present`, the RayService as it is, stay. There are pods also for the `awaited` applications, which
    follow soon. Without a `token`, authentication is off.
    """
    apps = sorted(applications, key=lambda app: str(app["name"]))
    desired = [frontend_group(settings), *session_groups]
    groups = [with_certificate(group, settings) for group in merged(worker_groups(present), desired)]
    cluster: dict[str, Any] = {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "idleTimeoutSeconds": settings.idle_seconds,
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
            "securityContext": restricted_container(),
        },
        "headGroupSpec": head_group(settings),
        "workerGroupSpecs": sized(groups, [*apps, *awaited], desired),
    }
    if settings.ray_version:
        cluster["rayVersion"] = settings.ray_version
    cluster |= fault_tolerance(namespace, settings)
    cluster = _complete(cluster, present, token, settings.drain_seconds)
    if present is not None and is_replaced(present["spec"]["rayClusterConfig"], cluster):
        cluster["workerGroupSpecs"] = _used(cluster["workerGroupSpecs"], desired)
    spec: dict[str, Any] = {"serveConfigV2": serve_config(apps), "rayClusterConfig": cluster}
    if settings.upgrade_strategy:
        spec["upgradeStrategy"] = settings.upgrade_strategy
    return {
        "apiVersion": API_VERSION,
        "kind": "RayService",
        "metadata": {"name": NAME, "namespace": namespace, "labels": LABELS},
        "spec": spec,
    }


def while_groups_are_appended(manifest: dict[str, Any], cluster: Document) -> dict[str, Any]:
    """The manifest as it is best while KubeRay appends groups of it to a running Ray cluster.

    KubeRay then replaces the specification of the cluster with all numbers of pods. It would remove any pods, also
    those with replicas, and `scaling` could not count those that are left. So the present groups have the pods that
    they have in the cluster, and the new groups have none. The numbers follow when the cluster has the groups.
    """
    known = {group["groupName"] for group in cluster["spec"].get("workerGroupSpecs") or ()}
    has_all = all(group["groupName"] in known for group in worker_groups(manifest))
    if has_all or is_replaced(cluster["spec"], manifest["spec"]["rayClusterConfig"]):
        return manifest
    pods = {group["groupName"]: group.get("replicas") or 0 for group in cluster["spec"].get("workerGroupSpecs") or ()}
    groups = [{**g, **dict.fromkeys(NUMBERS, pods.get(g["groupName"], 0))} for g in worker_groups(manifest)]
    config = {**manifest["spec"]["rayClusterConfig"], "workerGroupSpecs": groups}
    return {**manifest, "spec": {**manifest["spec"], "rayClusterConfig": config}}


def _complete(
    cluster: Document, present: Document | None, token: RayToken | None, drain_seconds: int
) -> dict[str, Any]:
    """The specification with Ray's token, a drain, and a Kubernetes token for the autoscaler only.

    A Ray cluster that was made before Partita had these stays without them, until KubeRay replaces it anyway.
    """
    separated = with_token_for_autoscaler_only(cluster)
    complete = with_drain(with_authentication(separated, present, token), drain_seconds)
    if present is None:
        return complete
    running = present["spec"]["rayClusterConfig"]
    kept = cluster if mounts_token_everywhere(running) else separated
    kept = kept if may_wait_for_token(present, token) else with_authentication(kept, present, token)
    kept = with_drain(kept, drain_seconds, without=groups_without_drain(running))
    return complete if is_replaced(running, kept) else kept


def _used(groups: Iterable[WorkerGroup], desired: Iterable[WorkerGroup]) -> list[WorkerGroup]:
    """The groups that a new Ray cluster needs: without those of earlier slices and templates, which have no pods."""
    names = {group["groupName"] for group in desired}
    return [group for group in groups if group["replicas"] or group["groupName"] in names]


def serve_config(applications: Iterable[AppConfig]) -> str:
    """Serve's configuration for KubeRay: YAML, written as JSON.

    KubeRay compares the text, so the same applications in any order must give the same text.
    """
    apps = sorted(applications, key=lambda app: str(app["name"]))
    return json.dumps(
        {"http_options": {"host": "0.0.0.0", "port": HTTP_PORT}, "applications": apps},
        sort_keys=True,
        separators=(",", ":"),
    )


def applications_of(present: Mapping[str, Any] | None) -> Deployments:
    """The applications in a RayService; none if there is no RayService.

    Raises UnreadableConfigError if another client owns or has edited the RayService.
    """
    return Deployments(present_serve_config(present)["applications"] if present is not None else ())


def present_serve_config(present: Mapping[str, Any]) -> Mapping[str, Any]:
    """Serve's configuration in a RayService. Raises UnreadableConfigError like `applications_of`."""
    meta = present["metadata"]
    where = f"RayService {meta['namespace']}/{meta['name']}"
    if not LABELS.items() <= (meta.get("labels") or {}).items():
        raise UnreadableConfigError(f"{where} does not belong to Partita. Rename or delete it, or use engine.type Ray.")
    try:
        config: Mapping[str, Any] = json.loads(present["spec"]["serveConfigV2"])
        _ = [app["name"] for app in config["applications"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableConfigError(
            f"The serveConfigV2 of {where} was edited and cannot be read ({error!r}); nothing was changed. Delete the "
            "RayService; Partita creates it again."
        ) from error
    return config


def worker_groups(present: Mapping[str, Any] | None) -> Sequence[WorkerGroup]:
    """The worker groups of a RayService."""
    groups: Sequence[WorkerGroup] = present["spec"]["rayClusterConfig"].get("workerGroupSpecs", ()) if present else ()
    return groups
