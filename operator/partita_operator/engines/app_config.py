"""One application of Serve's declarative configuration: what it says, and changed copies of it. Pure.

A configuration is written to Serve exactly as it was read, so it stays a mapping. Only this module knows where its
fields are. An application of Partita has one deployment.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from partita_operator.engines.placement import ReplicaDemand
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import parse_application
from partita_runtime.serving.deploy.relocation import STAND_IN_SECONDS, Relocation

CHANGED_AT_ONCE: Final = frozenset({"clients", "versions", "requestLog"})
"""Fields of a frontend's `user_config` that do not wait for a plan: its clients, other versions, request log."""

AppConfig = Mapping[str, Any]
"""One application of Serve's declarative configuration."""


def deployment_of(config: AppConfig) -> Mapping[str, Any]:
    """The application's one deployment."""
    (deployment,) = config["deployments"]
    found: Mapping[str, Any] = deployment
    return found


def with_deployment(config: AppConfig, **fields: Any) -> AppConfig:
    """The application with other fields in its deployment."""
    return {**config, "deployments": [{**deployment_of(config), **fields}]}


def with_replicas(config: AppConfig, replicas: int) -> AppConfig:
    """The application with another number of replicas."""
    return with_deployment(config, num_replicas=replicas)


def demand_of(config: AppConfig) -> ReplicaDemand:
    """What the replicas of a stage application take."""
    deployment = deployment_of(config)
    options = deployment["ray_actor_options"]
    each = {"CPU": options.get("num_cpus", 1.0), "GPU": options.get("num_gpus", 0.0), **options.get("resources", {})}
    needed = {name: units for name, units in each.items() if units}
    return ReplicaDemand(config["name"], deployment["num_replicas"], needed)


def configured_plan(frontend: AppConfig | None) -> str | None:
    """The plan that a frontend is configured to use."""
    if frontend is None:
        return None
    plan: Mapping[str, Any] = deployment_of(frontend).get("user_config", {}).get("plan", {})
    return plan.get("name")


def with_changes_at_once(source: AppConfig, frontend: AppConfig) -> AppConfig:
    """The frontend with what changes at once of `source`, another configuration of the same frontend."""
    before, after = deployment_of(frontend)["user_config"], deployment_of(source)["user_config"]
    kept = {name: value for name, value in before.items() if name not in CHANGED_AT_ONCE}
    given = {name: value for name, value in after.items() if name in CHANGED_AT_ONCE}
    return with_deployment(frontend, user_config={**kept, **given})


def stages_by_plan(config: AppConfig) -> dict[str, list[StageRef]]:
    """The stages that an application runs, by plan; none for a frontend.

    The vGPUs of a sub-cluster stay when the plan changes, so its application can hold the models of two plans.
    """
    parsed = parse_application(config["name"])
    if parsed is None:
        return {}
    if parsed.plan is not None and parsed.stage is not None:
        return {parsed.plan: [parsed.stage]}
    stages: dict[str, list[StageRef]] = {}
    for model in models_of(config) if parsed.subcluster is not None else ():
        stages.setdefault(model["plan"], []).append(StageRef(model["module"], model["pipeline"], model["stage"]))
    return stages


def models_of(config: AppConfig) -> Sequence[Mapping[str, Any]]:
    """The models that a sub-cluster is configured to load; none for other applications."""
    settings = [deployment.get("user_config", {}) for deployment in config.get("deployments", ())]
    return [model for user_config in settings for model in user_config.get("stages", ())]


def for_plans(config: AppConfig, plans: Collection[str]) -> AppConfig | None:
    """The application with the models of these plans only; None if it has no model of them."""
    present = stages_by_plan(config).keys()
    if not present & {*plans}:
        return None
    if present <= {*plans}:
        return config
    models = [model for model in models_of(config) if model["plan"] in plans]
    return with_deployment(config, user_config={**deployment_of(config)["user_config"], "stages": models})


def configured_relocation(config: AppConfig) -> Relocation | None:
    """The relocation in a stage's configuration: the replica that last made place for one on another node."""
    parsed = parse_application(config["name"])
    if parsed is None or parsed.stage is None:
        return None
    try:
        return Relocation.model_validate(deployment_of(config)["user_config"])
    except (KeyError, ValueError):
        return None


def with_relocation(config: AppConfig, relocation: Relocation, leaving: bool) -> AppConfig:
    """The stage with a relocation; while the replica is `leaving`, with more time for it to shut down."""
    fields: dict[str, Any] = {"user_config": relocation.model_dump(mode="json", by_alias=True)}
    if leaving:
        seconds = deployment_of(config)["graceful_shutdown_timeout_s"]
        fields["graceful_shutdown_timeout_s"] = seconds + STAND_IN_SECONDS
    return with_deployment(config, **fields)
