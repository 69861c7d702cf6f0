"""What the applications of a session should be next: pure, and decided from nothing but what is observed.

A new plan's stages come up beside the old plan's. Once they have their replicas, the frontend is told to use
them; once it says that it does, and that nothing is left to do for the old plan, the old plan's stages go. Called
again and again, this carries a migration to its end, whoever began it and however often anybody restarted.

Where new replicas find no node for a while because the cluster has no room for both plans, the old one gives up
replicas until there is one of each new stage; where even that does not fit, the old one is removed first; and a
new plan that cannot fit at all leaves the old one alone.

A sub-cluster that is in both plans keeps its vGPUs: they load what is new beside what serves, and forget what is old
once the frontend has left it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from partita_operator.engines.placement import Demand, Resources, missing, side_by_side, total
from partita_operator.engines.serve_state import (
    DELETING,
    DEPLOY_FAILED,
    RUNNING,
    AppConfig,
    Application,
    ServeState,
    own_configs,
)
from partita_operator.engines.shared_vgpus import beside, for_plans, has_loaded, stages_of
from partita_operator.ports import ServingSpec
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import (
    ServingOptions,
    frontend_application,
    parse_application,
    stage_applications,
)

PATIENCE_SECONDS: Final = 120.0
"""How long a switch waits for the last replicas of a stage that has at least one."""
MAKE_ROOM_SECONDS: Final = 30.0
"""How long replicas must have found no node before the old plan gives room to the new one."""
RETRY_SECONDS: Final = 120.0
"""After this long, an application that failed to deploy is tried again as it is."""

_ADVICE: Final = (
    "Add nodes that offer it (the pools' resource, GPU and CPU, as `ray status` lists them), or let other sessions or "
    "applications have less."
)


@dataclass(frozen=True)
class Wanted:
    """What should run for a session once everything is rolled out."""

    session_key: str
    plan: str
    frontend: AppConfig
    """The frontend, told to use the plan."""
    stages: tuple[AppConfig, ...]
    """The plan's stages with all the replicas that they should have."""


def wanted_applications(spec: ServingSpec, options: ServingOptions) -> Wanted:
    """What `spec` says, as applications."""
    replicas = {StageRef(t.module, t.pipeline, t.stage): t.replicas for t in spec.targets}
    return Wanted(
        session_key=spec.session.key,
        plan=spec.plan.metadata.name,
        frontend=frontend_application(spec.session, spec.plan, spec.profiles, spec.pools, options),
        stages=tuple(stage_applications(spec.session, spec.plan, spec.profiles, spec.pools, replicas, options)),
    )


@dataclass(frozen=True)
class FrontendReport:
    """What the session's frontend says of itself."""

    plan: str | None
    """The plan that it uses now."""
    draining: frozenset[str] = frozenset()
    """Earlier plans with batches that still run."""


@dataclass(frozen=True)
class Step:
    """What the session's applications should be now."""

    applications: tuple[AppConfig, ...]
    message: str = ""
    """What is waited for or done out of the ordinary; empty when all is rolled out."""


def next_step(
    wanted: Wanted, state: ServeState, report: FrontendReport | None, capacity: Resources, now: float
) -> Step:
    """The next step toward `wanted`.

    `report` is None while the frontend cannot be asked, `capacity` is the cluster's total of each resource, and `now`
    is in Unix seconds.
    """
    present = own_configs(state, wanted.session_key)
    frontend = present.get(wanted.frontend["name"])
    told = told_plan(frontend)
    if frontend is None or told is None:
        return Step((wanted.frontend, *wanted.stages), "The frontend is being started.")
    old = _old_stages(wanted, present, told, report)
    if told != wanted.plan and old:
        return _migrate(wanted, state, frontend, old, capacity, now)
    plans = sorted({plan for app in old for plan in stages_of(app)})
    message = f"Waiting until the frontend has left plan {', '.join(plans)}." if plans else ""
    if not message and _is_stuck(wanted, state, now):
        short = _lacks(_room(capacity, state, {app["name"] for app in wanted.stages}), wanted.stages)
        message = _does_not_fit(wanted, short) if short else ""
    return Step((wanted.frontend, *beside(old, wanted.stages)), message)


def told_plan(frontend: AppConfig | None) -> str | None:
    """The plan that a frontend's configuration tells it to use."""
    if frontend is None:
        return None
    plan: Mapping[str, Any] = frontend["deployments"][0].get("user_config", {}).get("plan", {})
    return plan.get("name")


def demand(app: AppConfig) -> Demand:
    """What a stage application takes."""
    deployment = app["deployments"][0]
    options = deployment["ray_actor_options"]
    each = {"CPU": options.get("num_cpus", 1.0), "GPU": options.get("num_gpus", 0.0), **options.get("resources", {})}
    return Demand(app["name"], deployment["num_replicas"], {name: units for name, units in each.items() if units})


def failed_for_long(app: Application, now: float) -> bool:
    """Whether deploying the application failed so long ago that it should be tried again."""
    return app.status == DEPLOY_FAILED and now - app.deployed > RETRY_SECONDS


def _old_stages(
    wanted: Wanted, present: Mapping[str, AppConfig], told: str, report: FrontendReport | None
) -> list[AppConfig]:
    """Stages of other plans that are still needed: the frontend uses them, will use them, or may."""
    if told != wanted.plan:
        needed = {told, report.plan if report else None}
    elif report is None:
        needed = {plan for config in present.values() for plan in stages_of(config)}
    else:
        needed = {report.plan, *report.draining}
    others = {plan for plan in needed if plan is not None and plan != wanted.plan}
    held = [for_plans(config, others) for config in present.values()]
    return [config for config in held if config is not None]


def _migrate(
    wanted: Wanted, state: ServeState, frontend: AppConfig, old: Sequence[AppConfig], capacity: Resources, now: float
) -> Step:
    """Brings the new stages up beside the old ones, and moves the frontend once they are up."""
    room = _room(capacity, state, {app["name"] for app in (*old, *wanted.stages)})
    kept = [app for app in beside(old, wanted.stages) if _is_in(app, old) and _is_in(app, wanted.stages)]
    for app in kept:
        for resource, units in total([demand(app)]).items():
            room[resource] = max(0.0, room.get(resource, 0.0) - units)
    old_demands = [demand(app) for app in old if not _is_in(app, kept)]
    new_demands = [demand(app) for app in wanted.stages if not _is_in(app, kept)]
    both = side_by_side(room, old_demands, new_demands)
    if _is_stuck(wanted, state, now):
        if both is None:
            return _without_room_for_both(wanted, frontend, old, room)
        old = [app if _is_in(app, kept) else _scaled(app, both.old[app["name"]]) for app in old]
    new = [app if _is_in(app, kept) else _scaled(app, both.new[app["name"]] if both else 1) for app in wanted.stages]
    waiting = [app["name"] for app in new if not _is_up(app, state.applications.get(app["name"]), now)]
    if not waiting:
        return Step((wanted.frontend, *beside(old, new)), f"Moving the frontend to plan {wanted.plan}.")
    message = f"Waiting for the replicas of plan {wanted.plan}: {', '.join(map(_stage_words, waiting))}."
    if both is None or any(both.new[d.name] < d.replicas for d in new_demands):
        message += " The cluster has no room for both plans in full, so until the old one is gone they run with less."
    return Step((frontend, *beside(old, new)), message)


def _without_room_for_both(wanted: Wanted, frontend: AppConfig, old: Sequence[AppConfig], room: Resources) -> Step:
    """Removes the old plan first, unless the new one could not run even then."""
    short = _lacks(room, wanted.stages)
    if not short:
        return Step(
            (wanted.frontend, *wanted.stages),
            f"There is no room for plan {wanted.plan} beside the old plan, so the old one was removed first, and "
            "requests are turned away until the new one is up. Free accelerators let migrations go without a gap.",
        )
    return Step(
        (frontend, *beside(old, [_scaled(app, 1) for app in wanted.stages])),
        _does_not_fit(wanted, f"{short}; the old plan goes on"),
    )


def _lacks(room: Resources, stages: Sequence[AppConfig]) -> str:
    """What there is too little of for one replica of every stage, in words; empty if there is enough."""
    one_of_each = total([replace(demand(app), replicas=1) for app in stages])
    return ", ".join(f"{units:g} {resource}" for resource, units in missing(room, one_of_each).items())


def _does_not_fit(wanted: Wanted, short: str) -> str:
    return f"Plan {wanted.plan} does not fit on the Ray cluster, which lacks {short}. {_ADVICE}"


def _is_stuck(wanted: Wanted, state: ServeState, now: float) -> bool:
    """Whether a new stage is without any replica, since its replicas have found no node for a while."""
    running = [state.applications[app["name"]] for app in wanted.stages if app["name"] in state.applications]
    return any(
        app.ready == 0
        and any(not r.placed and now - r.started > MAKE_ROOM_SECONDS for d in app.deployments for r in d.replicas)
        for app in running
    )


def _is_up(wanted: AppConfig, running: Application | None, now: float) -> bool:
    """Whether a new stage has its replicas; after some patience, whether it has any."""
    if running is None or running.status == DELETING:
        return False
    count = wanted["deployments"][0]["num_replicas"]
    if not has_loaded(wanted, running, now - running.deployed > PATIENCE_SECONDS):
        return False
    if running.ready >= count:
        return True
    late = [r for d in running.deployments for r in d.replicas if r.state != RUNNING]
    return running.ready >= 1 and bool(late) and all(now - r.started > PATIENCE_SECONDS for r in late)


def _room(capacity: Resources, state: ServeState, ours: set[str]) -> dict[str, float]:
    """What all other applications on the cluster leave of each resource."""
    room = dict(capacity)
    for app in state.applications.values():
        if app.name in ours:
            continue
        for deployment in app.deployments:
            for resource, units in deployment.resources.items():
                taken = units * max(deployment.target, len(deployment.replicas))
                room[resource] = room.get(resource, 0.0) - taken
    return room


def _scaled(app: AppConfig, replicas: int) -> AppConfig:
    (deployment,) = app["deployments"]
    return {**app, "deployments": [{**deployment, "num_replicas": replicas}]}


def _is_in(app: AppConfig, apps: Sequence[AppConfig]) -> bool:
    return any(app["name"] == other["name"] for other in apps)


def _stage_words(name: str) -> str:
    parsed = parse_application(name)
    if parsed is not None and parsed.subcluster is not None:
        return f"sub-cluster {parsed.subcluster}"
    if parsed is None or parsed.stage is None:
        return name
    ref = parsed.stage
    return f"stage {ref.stage} of {ref.module}/{ref.pipeline}"
