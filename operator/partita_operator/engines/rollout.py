"""The next applications of a session during a roll-out. Pure: decided from what is observed only.

The stages of a new plan start while those of the current plan still run. Once they have their replicas, the frontend is
configured to use the new plan. Once the frontend reports that it uses it and has no batch left on the old plan, the
old stages are removed. Repeated calls complete a migration, even if the operator or Ray restarts in between.

If new replicas find no node because the cluster cannot hold both plans, the old plan gives up replicas until there is
one of each new stage. If even that does not fit, the old plan is removed first. A new plan that cannot fit alone
changes nothing.

A sub-cluster that is in both plans keeps its vGPUs: they load the new models in addition to the old ones, and
unload the old ones once the frontend has left the old plan.
"""

from dataclasses import dataclass, replace
from typing import Final

from partita_api.pool.ray_resource import shared_resource
from partita_operator.engines.app_config import (
    AppConfig,
    configured_plan,
    demand_of,
    deployment_of,
    models_of,
    with_changes_at_once,
    with_deployment,
)
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.placement import (
    Resources,
    fit_both,
    missing,
    on_whole_accelerators,
    subtracted,
    total,
)
from partita_operator.engines.serve_state import DELETING, DEPLOY_FAILED, RUNNING, ServeApplication, ServeState
from partita_operator.ports import ServingSpec
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.applications import (
    ServingOptions,
    frontend_application,
    parse_application,
    stage_applications,
)
from partita_runtime.serving.deploy.monitoring_access import has_monitoring, without_monitoring

LATE_REPLICA_SECONDS: Final = 120.0
"""How long a migration waits for the last replicas of a stage that has at least one."""
UNPLACED_SECONDS: Final = 30.0
"""How long replicas must have found no node before the old plan gives up replicas for the new one."""
RETRY_SECONDS: Final = 120.0
"""After this time an application that failed to deploy is written again."""

ADVICE: Final = (
    "Add Ray nodes with these resources, or reduce what other sessions and applications use. To see what is in use: "
    "`ray status`"
)
"""What to do if a plan does not fit on the Ray cluster; the command is for a shell on the Ray head."""


@dataclass(frozen=True)
class RolloutTarget:
    """What should run for a session at the end of the roll-out."""

    session_key: str
    plan: str
    frontend: AppConfig
    """The frontend, configured to use the plan."""
    stages: Deployments
    """The plan's stages with all their replicas."""

    @property
    def deployments(self) -> Deployments:
        """The frontend and the stages."""
        return Deployments([self.frontend, *self.stages.values()])

    def with_old(self, frontend: AppConfig, old: Deployments, stages: Deployments | None = None) -> Deployments:
        """A frontend, the old stages and the plan's stages (all their replicas by default)."""
        new = self.stages if stages is None else stages
        return Deployments([frontend, *old.merged(new).values()])


def rollout_target(spec: ServingSpec, options: ServingOptions) -> RolloutTarget:
    """The applications for `spec`."""
    replicas = {StageRef(t.module, t.pipeline, t.stage): t.replicas for t in spec.targets}
    stages = stage_applications(spec.session, spec.plan, spec.profiles, spec.pools, replicas, options)
    return RolloutTarget(
        session_key=spec.session.key,
        plan=spec.plan.metadata.name,
        frontend=frontend_application(
            spec.session,
            spec.plan,
            spec.profiles,
            spec.pools,
            options,
            spec.clients,
            spec.versions,
            spec.request_log,
            spec.check,
        ),
        stages=Deployments(stages),
    )


@dataclass(frozen=True)
class FrontendReport:
    """What the session's frontend reports about its plans."""

    plan: str | None
    """The plan that it uses now."""
    draining: frozenset[str] = frozenset()
    """Earlier plans with batches that still run."""


@dataclass(frozen=True)
class RolloutStep:
    """What the session's applications should be now."""

    deployments: Deployments
    message: str = ""
    """What the roll-out waits for, or which exception it makes; empty once everything is rolled out."""


def next_step(
    target: RolloutTarget,
    state: ServeState,
    report: FrontendReport | None,
    capacity: Resources,
    now: float,
    late_seconds: float = LATE_REPLICA_SECONDS,
    missing_pod: str = "",
) -> RolloutStep:
    """The next step toward `target`.

    `report` is None while the frontend does not answer, `capacity` is the cluster's total of each resource, `now` is in
    Unix seconds. A stage with a replica is waited for until its others are `late_seconds` old. While no pod is ready
    that the frontend can move to, `missing_pod` says why, and the frontend stays where it is.
    """
    present = state.deployments(target.session_key)
    frontend = present.get(target.frontend["name"])
    configured = configured_plan(frontend)
    if frontend is None or configured is None:
        return RolloutStep(target.deployments, "The frontend starts.")
    if has_monitoring(target.frontend.get("runtime_env", {})) and not has_monitoring(frontend.get("runtime_env", {})):
        target = replace(target, frontend=_with_variables_of(frontend, target.frontend))
    old = _old_stages(target, present, configured, report)
    if configured != target.plan and old:
        # Whose requests are answered and logged, and by which version, changes at once, not when the new plan is ready.
        frontend = with_changes_at_once(target.frontend, frontend)
        return _migrate(target, state, frontend, old, capacity, now, late_seconds, missing_pod)
    stays = configured == target.plan and bool(missing_pod)
    next_frontend = _in_pods_of(frontend, target.frontend) if stays else target.frontend
    message = f"Waiting until the frontend has finished plan {', '.join(old.plans)}." if old.plans else ""
    if not message and _is_stuck(target, state, now):
        lacking = _lacking(_available(capacity, state, target.stages), target.stages)
        message = _does_not_fit(target, lacking) if lacking else ""
    if not message and stays:
        message = _waiting_for_pod(missing_pod)
    return RolloutStep(target.with_old(next_frontend, old), message)


def _with_variables_of(earlier: AppConfig, frontend: AppConfig) -> AppConfig:
    """`frontend` without the digest of the monitoring token, which frontends of earlier versions do not have.

    They do not read it, and other variables would restart all of them at once.
    """
    present, kept = earlier.get("runtime_env", {}), without_monitoring(frontend.get("runtime_env", {}))
    return {**frontend, "runtime_env": present if without_monitoring(present) == kept else kept}


def needs_other_pods(target: RolloutTarget, state: ServeState) -> bool:
    """Whether the present frontend is in pods that the target's cannot be in."""
    frontend = state.deployments(target.session_key).get(target.frontend["name"])
    return frontend is not None and demand_of(frontend).each != demand_of(target.frontend).each


def _in_pods_of(present: AppConfig, frontend: AppConfig) -> AppConfig:
    return with_deployment(frontend, ray_actor_options=deployment_of(present)["ray_actor_options"])


def _waiting_for_pod(missing: str) -> str:
    return f"Waiting for a pod that the frontend can move to. {missing}."


def failed_for_long(app: ServeApplication, now: float) -> bool:
    """Whether the deployment of the application failed long enough ago to try again."""
    return app.status == DEPLOY_FAILED and now - app.deployed > RETRY_SECONDS


def _old_stages(
    target: RolloutTarget, present: Deployments, configured: str, report: FrontendReport | None
) -> Deployments:
    """Stages of other plans that are still needed: the frontend uses them, will use them, or may use them."""
    if configured != target.plan:
        needed = {configured, report.plan if report else None}
    elif report is None:
        needed = {*present.plans}
    else:
        needed = {report.plan, *report.draining}
    return present.for_plans({plan for plan in needed if plan is not None and plan != target.plan})


def _migrate(
    target: RolloutTarget,
    state: ServeState,
    frontend: AppConfig,
    old: Deployments,
    capacity: Resources,
    now: float,
    late_seconds: float,
    missing_pod: str,
) -> RolloutStep:
    """Starts the new stages in addition to the old ones, and moves the frontend once they are ready."""
    shared = old.merged(target.stages).only(old.keys() & target.stages.keys())
    available = _without_shared(_available(capacity, state, old.merged(target.stages)), shared)
    old_demands, new_demands = old.without(shared).demands(), target.stages.without(shared).demands()
    counts = fit_both(available, old_demands, new_demands)
    if _is_stuck(target, state, now):
        if _in_other_pods(old, target.stages):
            whole = [[on_whole_accelerators(demand) for demand in demands] for demands in (old_demands, new_demands)]
            counts = fit_both(available, *whole)
        if counts is None:
            return _without_both(target, frontend, old, available)
        old = old.with_replicas(counts.old)
    first = dict.fromkeys(target.stages.without(shared), 1)
    new = target.stages.with_replicas(counts.new if counts else first)
    waiting = [
        name for name, config in new.items() if not _is_up(config, state.applications.get(name), now, late_seconds)
    ]
    if not waiting and missing_pod:
        return RolloutStep(target.with_old(frontend, old, new), _waiting_for_pod(missing_pod))
    if not waiting:
        return RolloutStep(target.with_old(target.frontend, old, new), f"Switching the frontend to plan {target.plan}.")
    message = f"Waiting for the replicas of plan {target.plan}: {', '.join(map(_stage_label, waiting))}."
    if counts is None or any(counts.new[d.name] < d.replicas for d in new_demands):
        message += (
            " Both plans run with fewer replicas until the old plan is removed, because the cluster is too small."
        )
    return RolloutStep(target.with_old(frontend, old, new), message)


def _without_both(target: RolloutTarget, frontend: AppConfig, old: Deployments, available: Resources) -> RolloutStep:
    """Removes the old plan first, unless the new plan could not run even then."""
    lacking = _lacking(available, target.stages)
    if not lacking:
        return RolloutStep(
            target.deployments,
            f"Requests are rejected until plan {target.plan} is ready: the old plan was removed first, because the "
            "cluster cannot hold both. To avoid this, keep as many accelerators free as the new plan needs.",
        )
    single = target.stages.with_replicas(dict.fromkeys(target.stages, 1))
    return RolloutStep(
        target.with_old(frontend, old, single), _does_not_fit(target, f"{lacking}; the old plan keeps serving")
    )


def _in_other_pods(old: Deployments, new: Deployments) -> bool:
    """Whether replicas are in pods of different templates, which cannot share an accelerator of their pool."""
    names = old.resource_names | new.resource_names
    return len({shared_resource(name) for name in names}) < len(names)


def _lacking(available: Resources, stages: Deployments) -> str:
    """What is missing for one replica of every stage, in words; empty if nothing is."""
    one_of_each = total([replace(demand, replicas=1) for demand in stages.demands()])
    return ", ".join(f"{units:g} {resource}" for resource, units in missing(available, one_of_each).items())


def _does_not_fit(target: RolloutTarget, lacking: str) -> str:
    return f"Plan {target.plan} does not fit on the Ray cluster, which lacks {lacking}. {ADVICE}"


def _is_stuck(target: RolloutTarget, state: ServeState, now: float) -> bool:
    """Whether a new stage has no ready replica because its replicas have found no node for a while."""
    running = [state.applications[name] for name in target.stages if name in state.applications]
    return any(
        app.ready == 0
        and any(not r.placed and now - r.started > UNPLACED_SECONDS for d in app.deployments for r in d.replicas)
        for app in running
    )


def _is_up(config: AppConfig, running: ServeApplication | None, now: float, late_seconds: float) -> bool:
    """Whether a new stage has all its replicas; after `late_seconds`, whether it has one."""
    if running is None or running.status == DELETING:
        return False
    if not has_loaded(config, running, now - running.deployed > late_seconds):
        return False
    if running.ready >= deployment_of(config)["num_replicas"]:
        return True
    late = [r for d in running.deployments for r in d.replicas if r.state != RUNNING]
    return running.ready >= 1 and bool(late) and all(now - r.started > late_seconds for r in late)


def has_loaded(config: AppConfig, running: ServeApplication, waited_long: bool) -> bool:
    """Whether the vGPUs of a sub-cluster have loaded all its models; always true of other applications.

    Once the migration has `waited_long`, one replica is enough.
    """
    models = models_of(config)
    if not models:
        return True
    if running.config is None or any(model not in models_of(running.config) for model in models):
        return False
    return running.status == RUNNING or (waited_long and running.ready >= 1)


def _available(capacity: Resources, state: ServeState, ours: Deployments) -> dict[str, float]:
    """What all other applications on the cluster leave of each resource."""
    return subtracted(capacity, state.claimed_resources(without=ours))


def _without_shared(available: Resources, shared: Deployments) -> dict[str, float]:
    """What the sub-clusters that both plans use leave; at least 0 of what these take."""
    taken = total(shared.demands())
    left = subtracted(available, taken)
    return {resource: max(0.0, units) if resource in taken else units for resource, units in left.items()}


def _stage_label(name: str) -> str:
    parsed = parse_application(name)
    if parsed is not None and parsed.subcluster is not None:
        return f"sub-cluster {parsed.subcluster}"
    if parsed is None or parsed.stage is None:
        return name
    ref = parsed.stage
    return f"stage {ref.stage} of {ref.module}/{ref.pipeline}"
