"""Checks of a session that its schema cannot make: its graph, its models and its pools."""

from collections.abc import Iterable
from dataclasses import dataclass

from partita_api.inferencesession import EngineType, InferenceSession, ObjectiveType
from partita_api.meta import MAX_SESSION_NAME, is_session_name
from partita_operator.pod_templates.session_pool import TemplateConflictError, session_pool
from partita_operator.reconcile import commands
from partita_operator.reconcile.capacity.accounting import selected_pools, usable_pools
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.findings import listed
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.client_access import authentication_required, forbidden_clients, invalid_clients
from partita_operator.reconcile.session.pod_policy import forbidden_pods
from partita_operator.settings.clients import Required
from partita_operator.settings.model import OperatorSettings
from partita_planner.session.session_graph import session_problems


@dataclass(frozen=True)
class SpecProblem:
    """Why a session cannot be served now."""

    reason: Reason
    message: str
    stalled: bool = True
    """Whether a person has to act."""


def find_problem(
    session: InferenceSession, cluster: Cluster, settings: OperatorSettings | None = None
) -> SpecProblem | None:
    """The first problem of the session's spec, if any.

    The `settings` have what the platform allows; without them nothing counts as forbidden.
    """
    return (
        _wrong_spec(session, cluster)
        or (_forbidden(session, settings) if settings is not None else None)
        or _wrong_pools(session, cluster)
        or _template_conflict(session, cluster)
        or _no_capacity(session, cluster)
        or _unknown_power(session, cluster)
    )


def _wrong_spec(session: InferenceSession, cluster: Cluster) -> SpecProblem | None:
    if session.key in cluster.unreadable:
        return SpecProblem(Reason.INVALID_SPEC, cluster.unreadable[session.key])
    if not is_session_name(session.metadata.name):
        return SpecProblem(
            Reason.INVALID_SPEC,
            f"The session's name must have at most {MAX_SESSION_NAME} characters: lower-case letters, digits and "
            "dashes. Delete the session and create it under another name.",
        )
    if found := session_problems(session.spec):
        return SpecProblem(Reason.INVALID_SPEC, f"{'; '.join(found)}.")
    if itself := [version.name for version in session.spec.versions if version.session == session.metadata.name]:
        return SpecProblem(
            Reason.INVALID_SPEC,
            f"spec.versions names the session itself as version {_list(itself)}. Name another session.",
        )
    wrong = invalid_clients(session)
    return SpecProblem(Reason.INVALID_SPEC, wrong) if wrong else None


def _forbidden(session: InferenceSession, settings: OperatorSettings) -> SpecProblem | None:
    if problems := settings.models.policy.session_problems(session.spec):
        return SpecProblem(Reason.FORBIDDEN_MODEL, f"{'; '.join(problems)}.")
    if problem := settings.request_log.problem(session.spec.frontend.request_log):
        return SpecProblem(Reason.FORBIDDEN_REQUEST_LOG, f"{problem}.")
    namespace, cluster = session.namespace, session.spec.engine.cluster
    if cluster is not None and settings.ray.cluster_for(cluster, namespace) is None:
        return SpecProblem(
            Reason.FORBIDDEN_RAY_CLUSTER,
            f"The platform does not offer the Ray cluster {cluster} to namespace {namespace}. Name another one in "
            "spec.engine.cluster, or have this one added to ray.clusters of the chart.",
        )
    if session.spec.clients is None and settings.clients.required is Required.ALWAYS:
        return SpecProblem(Reason.AUTHENTICATION_REQUIRED, authentication_required(settings.clients))
    if found := forbidden_clients(session, settings.clients):
        return SpecProblem(Reason.FORBIDDEN_CLIENTS, found)
    if (pods := _parts_of_pods(session)) and (
        session.spec.engine.type_or(settings.default_engine) is not EngineType.KUBERAY
    ):
        return SpecProblem(
            Reason.FORBIDDEN_POD_TEMPLATE,
            f"{_list(pods)} needs engine KubeRay, because Partita does not make the pods of engine Ray. Remove "
            "it, or set engine.type KubeRay.",
        )
    if parts := forbidden_pods(session.spec, settings.pod_templates):
        return SpecProblem(Reason.FORBIDDEN_POD_TEMPLATE, f"{listed(parts, '; ')}.")
    return None


def _parts_of_pods(session: InferenceSession) -> list[str]:
    """What of the spec only pods that Partita makes can have."""
    template = ["spec.podTemplate"] if session.spec.pod_template is not None else []
    own = [m.name for m in session.spec.modules if m.function is not None and m.function.image is not None]
    return [*template, *(f"spec.modules[{name}].function.image" for name in own)]


def _template_conflict(session: InferenceSession, cluster: Cluster) -> SpecProblem | None:
    for pool in selected_pools(session, cluster.pools).values():
        try:
            session_pool(pool, session.spec.pod_template)
        except TemplateConflictError as conflict:
            return SpecProblem(Reason.FORBIDDEN_POD_TEMPLATE, f"{conflict}.")
    return None


def _wrong_pools(session: InferenceSession, cluster: Cluster) -> SpecProblem | None:
    spec, pools = session.spec, cluster.pools
    if unknown := [name for name in spec.pools if name not in pools]:
        return SpecProblem(
            Reason.POOL_NOT_FOUND,
            f"spec.pools names {_list(unknown)}, but the cluster has no GPUPool of this name. Correct the name, or "
            "create the pool.",
        )
    selected = selected_pools(session, pools)
    if not selected:
        what = "exists" if spec.pool_selector.is_empty else f"has the labels {spec.pool_selector} of spec.poolSelector"
        return SpecProblem(Reason.NO_POOL_SELECTED, f"No GPUPool {what}. Create or label one, or change the session.")
    if unreadable := [name for name in selected if name in cluster.unreadable]:
        return SpecProblem(
            Reason.INVALID_POOL,
            f"The spec of GPUPool {_list(unreadable)} is invalid. Correct it; for details: "
            f"{commands.describe_pool(unreadable[0])}",
        )
    if all(pool.metadata.deletion_timestamp for pool in selected.values()):
        return SpecProblem(
            Reason.POOL_TERMINATING,
            f"All selected GPUPools ({_list(selected)}) are being deleted. Select others.",
        )
    return None


def _no_capacity(session: InferenceSession, cluster: Cluster) -> SpecProblem | None:
    if usable_pools(session, cluster.pools):
        return None
    selected = selected_pools(session, cluster.pools)
    unseen = [n for n, p in selected.items() if p.status.observed_generation < p.metadata.generation]
    if unseen:
        return SpecProblem(
            Reason.WAITING_FOR_POOLS, f"Partita counts the accelerators of {_list(unseen)}.", stalled=False
        )
    return SpecProblem(
        Reason.NO_CAPACITY,
        f"The selected GPUPools ({_list(selected)}) have no accelerators. Their condition Ready says why: "
        f"{commands.describe_pool(next(iter(selected)))}",
    )


def _unknown_power(session: InferenceSession, cluster: Cluster) -> SpecProblem | None:
    silent = [name for name, pool in usable_pools(session, cluster.pools).items() if pool.spec.power_watts is None]
    if session.spec.objective.type is not ObjectiveType.POWER or not silent:
        return None
    return SpecProblem(
        Reason.POWER_UNKNOWN,
        f"Objective Power needs spec.powerWatts, and GPUPool {_list(silent)} does not set it. Set it there, or exclude "
        "the pool by spec.pools.",
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
