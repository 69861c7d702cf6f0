"""What the admission webhook refuses: manifests that are valid by their schema and conflict with other objects.

Conditions report the same problems later. Only the webhook detects that two pools count the same accelerators. What
changes by itself, such as free accelerators, is never a reason to refuse.
"""

from dataclasses import dataclass, replace
from typing import Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_operator.reconcile.capacity.accounting import selected_pools, users
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.capacity.quotas import quota_use
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.client_access import authentication_required, lacks_clients
from partita_operator.reconcile.session.exposure.policy import forbidden
from partita_operator.reconcile.session.validation import find_problem
from partita_operator.settings.model import OperatorSettings

REFUSED: Final = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.AUTHENTICATION_REQUIRED,
        Reason.FORBIDDEN_CLIENTS,
        Reason.FORBIDDEN_MODEL,
        Reason.FORBIDDEN_POD_TEMPLATE,
        Reason.FORBIDDEN_RAY_CLUSTER,
        Reason.FORBIDDEN_REQUEST_LOG,
        Reason.POOL_NOT_FOUND,
        Reason.NO_POOL_SELECTED,
        Reason.POWER_UNKNOWN,
    }
)
"""Problems of a session that only a change of a manifest solves."""


@dataclass(frozen=True)
class Verdict:
    """Whether the API server may store a manifest."""

    refusal: str = ""
    """Why it may not, and what to change; empty if it may."""
    warnings: tuple[str, ...] = ()
    """Warnings to the author of a manifest that is stored."""


def judge_session(session: InferenceSession, complaint: str, cluster: Cluster, settings: OperatorSettings) -> Verdict:
    """The decision on a new or changed session; `complaint` says why its spec is unreadable, if it is."""
    unreadable = {key: why for key, why in cluster.unreadable.items() if key != session.key}
    if complaint:
        unreadable[session.key] = complaint
    after = replace(cluster, sessions={**cluster.sessions, session.key: session}, unreadable=unreadable)
    problem = find_problem(session, after, settings)
    if problem is not None and problem.reason in REFUSED:
        return Verdict(f"{problem.reason}: {problem.message}")
    return Verdict(_locked_out(session, cluster), _not_exposed(session, settings))


def judge_pool(pool: GPUPool, complaint: str, cluster: Cluster) -> Verdict:
    """The decision on a new or changed pool; `complaint` says why its spec is unreadable, if it is."""
    if complaint:
        return Verdict(f"{Reason.INVALID_SPEC}: {complaint}")
    name = pool.metadata.name
    for other in cluster.pools.values():
        if other.metadata.name == name or other.metadata.name in cluster.unreadable:
            continue
        if shared := _shared_accelerators(pool, other):
            return Verdict(
                f"GPUPool {other.metadata.name} already has {shared}: Partita would count these accelerators twice. "
                "Select others for this pool, or change the other pool."
            )
        if mixed := _mixed_sharing(pool, other):
            return Verdict(mixed)
    held = users(name, cluster)
    lowered = [
        f"Namespace {use.namespace} holds {use.allocated} accelerators of pool {name}, more than its quota {use.gpus}"
        for use in quota_use(pool, held)
        if use.allocated > use.gpus
    ]
    if pool.spec.count is not None and sum(held.values()) > pool.spec.count:
        lowered.append(f"Sessions {', '.join(held)} hold {sum(held.values())} accelerators, more than spec.count")
    return Verdict(warnings=tuple(f"{what}. Current plans stay until the planner finds others." for what in lowered))


def _not_exposed(session: InferenceSession, settings: OperatorSettings) -> tuple[str, ...]:
    """That the session serves without the public address that it requests."""
    if problem := forbidden(session, settings.exposure):
        return (f"{Reason.EXPOSE_NOT_ALLOWED}: {problem}",)
    unsafe = session.spec.expose is not None and lacks_clients(session, settings.clients)
    return (f"{Reason.AUTHENTICATION_REQUIRED}: {authentication_required(settings.clients)}",) if unsafe else ()


def _locked_out(session: InferenceSession, cluster: Cluster) -> str:
    """Why the quotas of all selected pools exclude the session's namespace; empty if one does not."""
    namespace = session.namespace
    selected = selected_pools(session, cluster.pools)
    if any(pool.spec.quota(namespace) != 0 for pool in selected.values()):
        return ""
    return (
        f"{Reason.QUOTA_EXCEEDED}: The quota of namespace {namespace} is 0 accelerators in each selected GPUPool. "
        "Select other pools, or raise spec.quotas of one of these."
    )


def _mixed_sharing(one: GPUPool, other: GPUPool) -> str:
    """Why the two pools' sharing modes conflict on their common nodes; empty if they do not."""
    if one.node_selector != other.node_selector or one.spec.emulation is not None or other.spec.emulation is not None:
        return ""
    if one.spec.devices is not None or other.spec.devices is not None:
        return ""  # a driver does not offer a GPU as a whole while it offers slices of it
    if {one.spec.sharing.mode, other.spec.sharing.mode} == {SharingMode.MPS, SharingMode.MIG}:
        return (
            f"GPUPool {other.metadata.name} shares GPUs of the nodes {one.node_selector} by {other.spec.sharing.mode}, "
            "and a node cannot have MPS and MIG. Label separate nodes for each pool."
        )
    if one.spec.mig is not None and other.spec.mig is not None:
        return (
            f"GPUPool {other.metadata.name} already has spec.mig for the nodes {one.node_selector}. Remove spec.mig "
            "from one of the two pools."
        )
    return ""


def _shared_accelerators(one: GPUPool, other: GPUPool) -> str:
    """What both pools have in common, such as a Ray resource; empty if they have nothing in common."""
    if one.ray_resource == other.ray_resource:
        return f"the Ray resource {one.ray_resource}"
    same_kind = one.accelerator_name == other.accelerator_name and one.spec.devices == other.spec.devices
    if not same_kind or one.node_selector != other.node_selector:
        return ""
    kind = "resource" if one.spec.devices is None else "DeviceClass"
    return f"the {kind} {one.accelerator_name} of {_nodes(one)}"


def _nodes(pool: GPUPool) -> str:
    return "all nodes" if pool.node_selector.is_empty else f"the nodes {pool.node_selector}"
