"""Which pods of a Ray cluster do not start, as remarks on the sessions that wait for them. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from partita_api.meta import POOL_LABEL
from partita_operator.engines.app_config import deployment_of
from partita_operator.engines.serve_state import ServeState
from partita_operator.pod_templates.start_problems import start_problem
from partita_operator.ports import Remark


def misses_replicas(state: ServeState, session_key: str) -> bool:
    """Whether an application of the session has fewer ready replicas than it should."""
    apps = state.of_session(session_key).values()
    return any(app.config is not None and app.ready < deployment_of(app.config)["num_replicas"] for app in apps)


def pod_remarks(pods: Iterable[Mapping[str, Any]], now: datetime) -> tuple[Remark, ...]:
    """What keeps pods from starting, each problem of a pool once."""
    found = [(_whose(pod), problem) for pod in pods if (problem := start_problem(pod, now))]
    return tuple(Remark(f"{whose} do not start: {problem}") for whose, problem in dict.fromkeys(found))


def _whose(pod: Mapping[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    pool, component = labels.get(POOL_LABEL), labels.get("app.kubernetes.io/component")
    return f"Pods of pool {pool}" if pool else f"Pods with component {component}"
