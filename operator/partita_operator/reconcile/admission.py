"""What the admission webhook refuses: manifests that a schema takes, and that other objects make wrong.

It refuses nothing that the conditions would not report as well, but for accelerators that two pools would count; so
where the webhook is not installed or not reached, nothing worse happens than that people hear of it later. What comes
and goes by itself (accelerators, pools on their way out) is never a reason to refuse.
"""

from dataclasses import dataclass, replace
from typing import Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec
from partita_operator.reconcile.capacity.accounting import selected_pools, users
from partita_operator.reconcile.capacity.quotas import quota_use
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.validation import find_problem
from partita_operator.reconcile.world import Cluster
from partita_runtime.models.policy import ModelPolicy

REFUSED: Final = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.FORBIDDEN_MODEL,
        Reason.POOL_NOT_FOUND,
        Reason.NO_POOL_SELECTED,
        Reason.POWER_UNKNOWN,
    }
)
"""Problems of a session that only another manifest ends."""


@dataclass(frozen=True)
class Verdict:
    """Whether a manifest may be stored."""

    refusal: str = ""
    """Why not, and what to change; empty if it may."""
    warnings: tuple[str, ...] = ()
    """What its author should know all the same."""


def judge_session(session: InferenceSession, complaint: str, cluster: Cluster, policy: ModelPolicy) -> Verdict:
    """A new session, or one with another spec; `complaint` is why its spec cannot be read, if so."""
    unreadable = {key: why for key, why in cluster.unreadable.items() if key != session.key}
    if complaint:
        unreadable[session.key] = complaint
    after = replace(cluster, sessions={**cluster.sessions, session.key: session}, unreadable=unreadable)
    problem = find_problem(session, after, policy)
    if problem is not None and problem.reason in REFUSED:
        return Verdict(f"{problem.reason}: {problem.message}")
    return Verdict(_locked_out(session, cluster))


def judge_pool(pool: GPUPool, complaint: str, cluster: Cluster) -> Verdict:
    """A new pool, or one with another spec; `complaint` is why its spec cannot be read, if so."""
    if complaint:
        return Verdict(f"{Reason.INVALID_SPEC}: {complaint}")
    name = pool.metadata.name
    for other in cluster.pools.values():
        if other.metadata.name == name or other.metadata.name in cluster.unreadable:
            continue
        if shared := _shared_accelerators(pool, other):
            return Verdict(
                f"GPUPool {other.metadata.name} has {shared} already, so that the same accelerators would be counted "
                "and given away twice. Give this pool others, or change that one."
            )
        if mixed := _mixed_sharing(pool, other):
            return Verdict(mixed)
    held = users(name, cluster)
    lowered = [
        f"namespace {use.namespace} holds {use.allocated} accelerators of pool {name} and may have {use.gpus} now"
        for use in quota_use(pool, held)
        if use.allocated > use.gpus
    ]
    if pool.spec.count is not None and sum(held.values()) > pool.spec.count:
        lowered.append(f"{', '.join(held)} hold {sum(held.values())} accelerators, more than spec.count")
    return Verdict(warnings=tuple(f"{what}; plans in force stay until others are found." for what in lowered))


def judge_plan(old: PipelinePlan, new: PipelinePlan) -> Verdict:
    """A plan that somebody changes: only its approval may."""
    broken = [rule.message for rule in PipelinePlanSpec.transition_rules if not rule.allows(old.spec, new.spec)]
    return Verdict("; ".join(broken))


def _locked_out(session: InferenceSession, cluster: Cluster) -> str:
    """Why no pool has anything for the session's namespace, whatever others hold; empty if one has."""
    namespace = session.metadata.namespace or "default"
    selected = selected_pools(session, cluster.pools)
    if any(pool.spec.quota(namespace) != 0 for pool in selected.values()):
        return ""
    return (
        f"{Reason.QUOTA_EXCEEDED}: The quota of namespace {namespace} is 0 accelerators of each pool that the session "
        f"selects ({', '.join(selected)}). Select others, or raise spec.quotas of one of these GPUPools."
    )


def _mixed_sharing(one: GPUPool, other: GPUPool) -> str:
    """Why the nodes that both pools select cannot be shared as each of them wants; empty if they can."""
    if one.node_selector != other.node_selector or one.spec.emulation is not None or other.spec.emulation is not None:
        return ""
    if {one.spec.sharing.mode, other.spec.sharing.mode} == {SharingMode.MPS, SharingMode.MIG}:
        return (
            f"GPUPool {other.metadata.name} shares GPUs of the nodes {one.node_selector} by {other.spec.sharing.mode}. "
            "A node has either MPS or MIG. Label separate nodes for each pool."
        )
    if one.spec.mig is not None and other.spec.mig is not None:
        return (
            f"GPUPool {other.metadata.name} already has spec.mig for the nodes {one.node_selector}. Remove spec.mig "
            "from one of the two pools."
        )
    return ""


def _shared_accelerators(one: GPUPool, other: GPUPool) -> str:
    """What both pools find their accelerators by, in words; empty if they have none in common."""
    if one.ray_resource == other.ray_resource:
        return f"the Ray resource {one.ray_resource}"
    if one.node_selector == other.node_selector and one.spec.resource_name == other.spec.resource_name:
        return f"the resource {one.spec.resource_name} of the nodes {one.node_selector}"
    return ""
