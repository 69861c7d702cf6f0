"""The applications of sub-clusters, which outlive plans: their vGPUs hold the models of one plan or of two."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from partita_operator.engines.serve_state import RUNNING, AppConfig, Application
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import holding_both, parse_application


def stages_of(config: AppConfig) -> dict[str, list[StageRef]]:
    """The stages that an application runs, by plan; none for a frontend."""
    parsed = parse_application(config["name"])
    if parsed is None:
        return {}
    if parsed.plan is not None and parsed.stage is not None:
        return {parsed.plan: [parsed.stage]}
    stages: dict[str, list[StageRef]] = {}
    for held in _held(config) if parsed.subcluster is not None else ():
        stages.setdefault(held["plan"], []).append(StageRef(held["module"], held["pipeline"], held["stage"]))
    return stages


def for_plans(config: AppConfig, plans: Collection[str]) -> AppConfig | None:
    """The application with the models of these plans alone; None if it has none of theirs."""
    there = stages_of(config)
    if not there.keys() & {*plans}:
        return None
    if there.keys() <= {*plans}:
        return config
    (deployment,) = config["deployments"]
    kept = [held for held in _held(config) if held["plan"] in plans]
    user_config = {**deployment["user_config"], "stages": kept}
    return {**config, "deployments": [{**deployment, "user_config": user_config}]}


def beside(old: Sequence[AppConfig], new: Sequence[AppConfig]) -> tuple[AppConfig, ...]:
    """Old applications beside new ones; a sub-cluster of both is one, which holds the models of both."""
    by_name = {app["name"]: app for app in old}
    merged = [holding_both(by_name.pop(app["name"]), app) if app["name"] in by_name else app for app in new]
    return (*by_name.values(), *merged)


def has_loaded(wanted: AppConfig, running: Application, patience_over: bool) -> bool:
    """Whether a sub-cluster's replicas hold all of its models, or once patience is over, may; true of others."""
    if not _held(wanted):
        return True
    if running.config is None or any(held not in _held(running.config) for held in _held(wanted)):
        return False
    return running.status == RUNNING or (patience_over and running.ready >= 1)


def _held(config: AppConfig) -> Sequence[Mapping[str, Any]]:
    """What a sub-cluster is told to hold; nothing for other applications."""
    told = [deployment.get("user_config", {}) for deployment in config.get("deployments", ())]
    return [stage for user_config in told for stage in user_config.get("stages", ())]
