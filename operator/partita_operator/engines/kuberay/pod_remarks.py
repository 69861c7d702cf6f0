"""Which pods of a Ray cluster do not start, as remarks on the sessions that wait for them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from partita_api.meta import POOL_LABEL
from partita_api.pool.ray_resource import digest_of
from partita_operator.engines.app_config import demand_of, deployment_of
from partita_operator.engines.kuberay.pod_numbers import is_up
from partita_operator.engines.kuberay.worker_groups import TEMPLATE_LABEL
from partita_operator.engines.serve_state import ServeState
from partita_operator.kube.rayservices import GROUP_LABEL
from partita_operator.pod_templates.start_problems import start_problem, unplaced_problem
from partita_operator.ports import Remark


def misses_replicas(state: ServeState, session_key: str) -> bool:
    """Whether an application of the session has fewer ready replicas than it should."""
    apps = state.of_session(session_key).values()
    return any(app.config is not None and app.ready < deployment_of(app.config)["num_replicas"] for app in apps)


def pods_of(state: ServeState, session_key: str, pods: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The pods that the session may run in: those without a pod template of a session, and those with its own."""
    configs = [app.config for app in state.of_session(session_key).values() if app.config is not None]
    own = {digest_of(resource) for config in configs for resource in demand_of(config).each} | {""}
    return tuple(pod for pod in pods if _labels(pod).get(TEMPLATE_LABEL, "") in own)


def pod_remarks(pods: Iterable[Mapping[str, Any]], now: datetime, replaced: bool = False) -> tuple[Remark, ...]:
    """What keeps pods from starting: for each pool the problem of one pod.

    While a Ray cluster is `replaced`, also the lack of nodes: Serve does not know the replicas of the new cluster.
    """
    problems: dict[str, str] = {}
    for pod in pods:
        if problem := start_problem(pod, now) or (replaced and unplaced_problem(pod, now)):
            problems.setdefault(_whose(pod), problem)
    return tuple(Remark(f"{whose} do not start: {problem}") for whose, problem in problems.items())


def missing_frontend_pod(group: str, pods: Collection[Mapping[str, Any]], now: datetime) -> str:
    """Why no pod of this group of frontends is ready; empty if one is."""
    if is_up(group, pods):
        return ""
    own = (pod for pod in pods if _labels(pod).get(GROUP_LABEL) == group)
    return next(filter(None, (start_problem(pod, now) for pod in own)), "It starts")


def _whose(pod: Mapping[str, Any]) -> str:
    labels = _labels(pod)
    pool, component = labels.get(POOL_LABEL), labels.get("app.kubernetes.io/component")
    whose = f"Pods of pool {pool}" if pool else f"Pods with component {component}"
    return f"{whose} and the session's podTemplate" if TEMPLATE_LABEL in labels else whose


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}
