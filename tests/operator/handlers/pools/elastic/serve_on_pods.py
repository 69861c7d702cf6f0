"""A test double of Ray Serve on the pods of a Ray cluster: replicas run on pods that are Ready, one on each worker.

It is the dashboard that KubeRay and Partita talk to, and the frontend that Partita asks. Its port is the one of every
Ray head, since KubeRay finds the head by its pod's address. Ray itself does not run.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.operator.engines.dashboard_double import APPLICATIONS, DashboardDouble, Json, shown_as

from partita_api.meta import POOL_LABEL
from partita_operator.engines.app_config import AppConfig, configured_plan, demand_of, stages_by_plan
from partita_operator.engines.deployments import session_of
from partita_operator.engines.kuberay.worker_groups import FRONTEND_RESOURCE
from partita_runtime.serving.deploy.applications import parse_application
from partita_runtime.serving.telemetry.signals import SessionSignals

DASHBOARD_PORT: Final = 8265
_SIGNALS: Final = "/partita/signals"
_IDS = itertools.count()


@dataclass
class ServeOnPods(DashboardDouble):
    """In a `with` block it listens on the pods' address."""

    port: int = DASHBOARD_PORT
    pods: Callable[[], list[Json]] = list
    """The pods of the namespace."""
    replicas: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """The pod of each replica, by application; None while it waits for one."""

    _asked: threading.Lock = field(default_factory=threading.Lock)

    def shown(self, path: str) -> Json:
        """The answer of GET: the frontend's signals, or the applications as they run now."""
        with self._asked:
            return self._answer(path)

    def _answer(self, path: str) -> Json:
        self._place()
        if path.endswith(_SIGNALS):
            return self._signals(path)
        answer = super().shown(path)
        if path != APPLICATIONS:
            return answer
        return {**answer, "applications": {name: self._as_it_runs(app) for name, app in self.apps.items()}}

    def _place(self) -> None:
        """Replicas leave pods that are not Ready, and those without a pod get one that is free."""
        ready = _ready(self.pods())
        demands = {name: demand_of(app["deployed_app_config"]) for name, app in self.apps.items()}
        self.replicas = {
            name: {id: pod if pod in ready else None for id, pod in self._sized(name, demand.replicas).items()}
            for name, demand in demands.items()
        }
        taken = {pod for name in self.replicas if not _is_frontend(name) for pod in self.replicas[name].values()}
        for name, placed in self.replicas.items():
            fitting = [pod for pod, resource in ready.items() if resource in demands[name].each]
            for id in [id for id, pod in placed.items() if pod is None]:
                free = [pod for pod in fitting if _is_frontend(name) or pod not in taken]
                placed[id] = free[0] if free else None
                taken.add(placed[id])

    def _sized(self, name: str, count: int) -> dict[str, str | None]:
        present = list(self.replicas.get(name, {}).items())[:count]
        return dict(present) | {f"replica-{next(_IDS)}": None for _ in range(count - len(present))}

    def _as_it_runs(self, app: Json) -> Json:
        config, placed = app["deployed_app_config"], self.replicas[app["name"]]
        up = all(placed.values())
        replicas = [
            {"state": "RUNNING" if pod else "STARTING", "node_id": pod, "start_time_s": 0.0, "replica_id": id}
            for id, pod in placed.items()
        ]
        deployment = {
            "status": "HEALTHY" if up else "UPDATING",
            "message": "",
            "target_num_replicas": len(placed),
            "required_resources": demand_of(config).each,
            "replicas": replicas,
        }
        deployments = {config["deployments"][0]["name"]: deployment}
        return shown_as(config, status="RUNNING" if up else "DEPLOYING", deployments=deployments)

    def _signals(self, path: str) -> Json:
        """What the frontend of a session measures: nothing but the plan that it uses."""
        session = path.removesuffix(_SIGNALS).strip("/")
        configs: list[AppConfig] = [app["deployed_app_config"] for app in self.apps.values()]
        own = [config for config in configs if session_of(config["name"]) == session]
        (plan,) = [configured_plan(config) for config in own if _is_frontend(config["name"])]
        stages = [config["name"] for config in own if plan in stages_by_plan(config)]
        serves = bool(stages) and all(any(self.replicas[name].values()) for name in stages)
        rates = dict.fromkeys(("offered_rate", "goodput", "bad_rate", "idle_fraction", "p50_ms", "p99_ms"), 0.0)
        signals = SessionSignals(
            session=session,
            window_seconds=10.0,
            plan=plan if serves else None,
            next_plan=None if serves else plan,
            message="",
            batch_sizes={},
            outcomes={},
            stages=(),
            **rates,
        )
        found: Json = signals.model_dump(mode="json", by_alias=True)
        return found


def _ready(pods: list[Json]) -> dict[str, str]:
    """Names of the pods that are Ready and stay, and the Ray resource that they offer."""
    return {
        pod["metadata"]["name"]: _resource(pod["metadata"]["labels"])
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
    }


def _resource(labels: Mapping[str, Any]) -> str:
    if labels.get("app.kubernetes.io/component") == "frontend":
        return FRONTEND_RESOURCE
    return f"partita-pool-{labels.get(POOL_LABEL)}"


def _is_frontend(name: str) -> bool:
    parsed = parse_application(name)
    return parsed is not None and parsed.stage is None and parsed.subcluster is None
