"""A model of Ray Serve for rollouts: applications, replicas that need resources, and a frontend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partita_operator.engines.app_config import AppConfig, configured_plan, demand_of, stages_by_plan
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.placement import fits
from partita_operator.engines.rollout import FrontendReport
from partita_operator.engines.serve_state import ServeApplication, ServeDeployment, ServeReplica, ServeState
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import frontend_name, parse_application, stage_name, subcluster_name

SESSION = "default/traffic"
FRONTEND = frontend_name(SESSION)
TICK_SECONDS = 10.0


def frontend_config(plan: str, **others: Any) -> AppConfig:
    """A frontend of this plan, with `others` in its `user_config`."""
    user_config = {"plan": {"name": plan}, **others}
    return {"name": FRONTEND, "deployments": [{"name": "frontend", "user_config": user_config}]}


def stage_config(
    plan: str, stage: int, replicas: int, pool: str = "a", share: float = 1.0, session: str = SESSION
) -> AppConfig:
    options = {"num_cpus": 0.0, "num_gpus": 0, "resources": {pool: share}}
    deployment = {"name": "stage", "num_replicas": replicas, "ray_actor_options": options}
    return {"name": stage_name(session, plan, StageRef("m", "p", stage)), "deployments": [deployment]}


def subcluster_config(plan: str, modules: str, replicas: int, pool: str = "a") -> AppConfig:
    """A sub-cluster with one model for each letter."""
    options = {"num_cpus": 0.0, "num_gpus": 0, "resources": {pool: 1.0}}
    stages = [{"plan": plan, "module": module, "pipeline": "p", "stage": 0} for module in modules]
    deployment = {"name": "subcluster", "num_replicas": replicas, "ray_actor_options": options}
    told = {"user_config": {"stages": stages}}
    return {"name": subcluster_name(SESSION, pool, 1, "all"), "deployments": [{**deployment, **told}]}


def application(
    config: AppConfig, replicas: Sequence[ServeReplica] = (), status: str = "RUNNING", message: str = ""
) -> ServeApplication:
    """An application in Serve's answer."""
    is_stage = "ray_actor_options" in config["deployments"][0]
    deployment = ServeDeployment(
        message="",
        target=config["deployments"][0].get("num_replicas", 1),
        resources=demand_of(config).each if is_stage else {},
        replicas=tuple(replicas),
    )
    return ServeApplication(
        name=config["name"],
        status=status,
        message=message,
        deployed=0.0,
        declarative=True,
        config=config,
        deployments=(deployment,),
    )


@dataclass
class ServeModel:
    """Serve on a cluster; `tick` is one step of time."""

    capacity: Mapping[str, float]
    now: float = 0.0
    configs: dict[str, AppConfig] = field(default_factory=dict)
    replicas: dict[str, list[ServeReplica]] = field(default_factory=dict)
    loaded: dict[str, AppConfig] = field(default_factory=dict)
    """Plans whose models all sub-clusters have loaded."""
    serving: str | None = None
    """The plan that the frontend uses."""
    broken: frozenset[str] = frozenset()
    """Plans whose replicas find a node and never become ready."""

    def put(self, applications: Deployments) -> None:
        self.configs = dict(applications)
        self.replicas = {name: found for name, found in self.replicas.items() if name in self.configs}
        for app in applications.values():
            desired = app["deployments"][0].get("num_replicas", 1)
            have = self.replicas.setdefault(app["name"], [])
            have[desired:] = []
            have += [ServeReplica("STARTING", node=None, started=self.now)] * (desired - len(have))

    def tick(self) -> None:
        """Place replicas, make placed ones ready, and advance the frontend."""
        self.now += TICK_SECONDS
        self.loaded = {name: config for name, config in self.configs.items() if not self._plans(name) & self.broken}
        for name, replicas in self.replicas.items():
            for at, replica in enumerate(replicas):
                if replica.placed and not self._plans(name) & self.broken:
                    replicas[at] = ServeReplica("RUNNING", "node", replica.started)
                elif not replica.placed and fits(self._free(), self._each(name)):
                    replicas[at] = ServeReplica("STARTING", "node", replica.started)
        told = configured_plan(self.configs.get(FRONTEND))
        if told and self.is_complete(told) and self._running(FRONTEND):
            self.serving = told

    def is_complete(self, plan: str | None) -> bool:
        """Whether every stage of the plan has a replica that is ready."""
        stages = [name for name in self.configs if plan in self._plans(name)]
        return bool(stages) and all(self._running(name) and plan in self._loaded_plans(name) for name in stages)

    @property
    def state(self) -> ServeState:
        apps = {
            name: application(config, self.replicas[name], "RUNNING" if self._has_loaded(name) else "DEPLOYING")
            for name, config in self.configs.items()
        }
        return ServeState(running=True, applications=apps)

    @property
    def report(self) -> FrontendReport | None:
        return FrontendReport(self.serving) if self._running(FRONTEND) else None

    def counts(self) -> dict[str, int]:
        """Replicas by `plan/stage`."""
        return {
            f"{parsed.plan}/{parsed.stage.stage}": config["deployments"][0]["num_replicas"]
            for name, config in self.configs.items()
            if (parsed := parse_application(name)) and parsed.stage
        }

    def _running(self, name: str) -> int:
        return sum(replica.state == "RUNNING" for replica in self.replicas.get(name, ()))

    def _free(self) -> dict[str, float]:
        free = dict(self.capacity)
        for name, replicas in self.replicas.items():
            for resource, units in self._each(name).items():
                free[resource] = free.get(resource, 0.0) - units * sum(replica.placed for replica in replicas)
        return free

    def _each(self, name: str) -> Mapping[str, float]:
        return {} if name == FRONTEND else demand_of(self.configs[name]).each

    def _plans(self, name: str) -> set[str]:
        return {*stages_by_plan(self.configs[name])} if name in self.configs else set()

    def _loaded_plans(self, name: str) -> set[str]:
        return {*stages_by_plan(self.loaded.get(name, {"name": ""}))}

    def _has_loaded(self, name: str) -> bool:
        parsed = parse_application(name)
        return parsed is None or parsed.subcluster is None or self.loaded.get(name) == self.configs[name]
