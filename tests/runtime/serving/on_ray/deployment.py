"""Sessions on a real Ray cluster, deployed like by the operator: by Serve's declarative REST configuration."""

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import Load, steady_load
from tests.runtime.serving.plans import REAL, Application

from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import (
    ServingOptions,
    frontend_application,
    holding_both,
    stage_applications,
)
from partita_runtime.serving.deploy.monitoring_access import authorization, token_digest

OPTIONS = ServingOptions(
    frontend_cpus=0.1,
    frontend_resources={f"partita-pool-{REAL}": 0.1},
    stage_cpus=0.1,
    health_check_seconds=1.0,
    monitoring_digest=token_digest("token-of-the-namespace"),
)
"""All frontends run on the node of pool REAL."""


@dataclass
class Deployment:
    """The deployed applications of one cluster."""

    cluster: RayCluster
    applications: dict[str, dict[str, Any]] = field(default_factory=dict)

    def apply_stages(
        self, app: Application, replicas: Mapping[StageRef, int] | None = None, most_on_a_node: int | None = None
    ) -> None:
        """Start or scale the stage applications of the session's plan."""
        stages = stage_applications(app.session, app.plan, app.profiles, app.pools, replicas or {}, OPTIONS)
        if most_on_a_node is not None:
            for stage in stages:
                stage["deployments"][0]["max_replicas_per_node"] = most_on_a_node
        self._take(stages)
        self._put()

    def apply_frontend(
        self, app: Application, options: ServingOptions = OPTIONS, most_on_a_node: int | None = None
    ) -> None:
        """Start the session's frontend, or switch it to the session's plan."""
        frontend = frontend_application(app.session, app.plan, app.profiles, app.pools, options, app.clients)
        if most_on_a_node is not None:
            frontend["deployments"][0]["max_replicas_per_node"] = most_on_a_node
        self._take([frontend])
        self._put()

    def deploy(self, *apps: Application, options: ServingOptions = OPTIONS) -> None:
        """Start everything and wait until it serves."""
        for app in apps:
            self._take(stage_applications(app.session, app.plan, app.profiles, app.pools, {}, options))
            self._take([frontend_application(app.session, app.plan, app.profiles, app.pools, options)])
        self._put()
        self.until(lambda: all(self.ready(app) for app in apps), "everything serves")

    def apply_both(self, old: Application, new: Application) -> None:
        """Load the models of both plans on vGPUs of sub-clusters that are in both."""
        before = {app["name"]: app for app in _stages(old)}
        self._take([holding_both(before[app["name"]], app) if app["name"] in before else app for app in _stages(new)])
        self._put()

    def running(self, name: str) -> bool:
        """Whether Serve has completed all changes of an application."""
        details = self.cluster.get(APPLICATIONS_PATH)
        return bool(details["applications"][name]["status"] == "RUNNING")

    def remove(self, unwanted: Callable[[str], bool]) -> None:
        """Remove the applications with these names."""
        self.applications = {name: a for name, a in self.applications.items() if not unwanted(name)}
        self._put()

    def url(self, app: Application) -> str:
        """host:port/namespace/session, in tritonclient's format."""
        return f"127.0.0.1:{self.cluster.serve_http_port}/{app.session.key}"

    def signals(self, app: Application) -> dict[str, Any]:
        """The frontend's signals; empty while it does not answer."""
        try:
            headers = authorization("token-of-the-namespace")
            answer = httpx.get(f"http://{self.url(app)}/partita/signals", headers=headers, timeout=5)
        except httpx.HTTPError:
            return {}
        return dict(answer.json()) if answer.is_success else {}

    def ready(self, app: Application) -> bool:
        """Whether the frontend reports that it is ready."""
        try:
            return httpx.get(f"http://{self.url(app)}/v2/health/ready", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def ready_replicas(self, app: Application) -> list[int]:
        """Ready replicas of each stage, as the frontend reports."""
        return [stage["ready"] for stage in self.signals(app).get("stages", ())]

    def actor(self, name: str) -> dict[str, Any]:
        """The living actor of this name, as Ray describes it; only `pid: 0` if there is none."""
        answer = self.cluster.get(
            f"/api/v0/actors?detail=1&filter_keys=name&filter_predicates=%3D&filter_values={name}"
        )
        actors = answer["data"]["result"]["result"]
        return next((dict(actor) for actor in actors if actor["state"] != "DEAD"), {"pid": 0})

    def replicas(self) -> list[dict[str, Any]]:
        """All replicas, as Serve describes them, each with its application's name."""
        details = self.cluster.get(APPLICATIONS_PATH)
        return [
            {**replica, "application": name}
            for name, application in details["applications"].items()
            for deployment in application["deployments"].values()
            for replica in deployment["replicas"]
        ]

    def until(self, reached: Callable[[], object], what: str) -> None:
        """Poll until `reached()` is true. Fails with `what` after a time limit."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < deadline, f"timed out: {what}"
            time.sleep(0.2)

    def _take(self, applications: list[dict[str, Any]]) -> None:
        self.applications |= {application["name"]: application for application in applications}

    def _put(self) -> None:
        deploy(self.cluster, {"applications": [*self.applications.values()]})


def _stages(app: Application) -> list[dict[str, Any]]:
    return stage_applications(app.session, app.plan, app.profiles, app.pools, {}, OPTIONS)


class Loading:
    """Steady load from another thread, until it is stopped."""

    def __init__(self, deployment: Deployment, app: Application, rate: float, try_again: bool = False) -> None:
        self._stop = False
        self._sent = 0
        self._thread = ThreadPoolExecutor(1)
        url = f"http://{deployment.url(app)}/v2/models/{app.name}/infer"
        sample = np.zeros((1, *app.models[0].input), np.float32)
        self._done: Future[Load] = self._thread.submit(
            lambda: asyncio.run(steady_load(url, sample, rate, self._is_enough, 150, try_again))
        )

    def sent(self) -> int:
        """Requests so far."""
        return self._sent

    def _is_enough(self, load: Load) -> bool:
        self._sent = load.sent
        return self._stop

    def stop(self) -> Load:
        """Results of the requests, after all have ended."""
        self._stop = True
        return self._done.result()
