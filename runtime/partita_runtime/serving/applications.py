"""The Serve applications of a session, as its declarative configuration wants them: pure, and always the same.

One application for the frontend and a small one for every stage (partition pool) of a plan, so that a change of plan
disturbs nobody: changed `args` would restart an application, so all that may change while it runs is in
`num_replicas` (how many vGPUs) and `user_config` (which plan the frontend serves). Both change in place.
"""

from collections.abc import Mapping
from math import floor
from typing import Any

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_api.meta import SpecModel
from partita_api.pipelineplan import PipelinePlan, PooledPipeline
from partita_api.profile import Profile
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.epoch import epoch
from partita_runtime.serving.names import (
    FRONTEND,
    STAGE,
    ApplicationName,
    frontend_name,
    parse_application,
    route_prefix,
    stage_name,
)
from partita_runtime.serving.stage_arguments import StageArguments, has_gpus, stage_build

__all__ = [
    "ApplicationName",
    "ServingOptions",
    "frontend_application",
    "frontend_name",
    "parse_application",
    "route_prefix",
    "stage_applications",
    "stage_name",
]


class ServingOptions(SpecModel):
    """How the processes of a session run; the same for as long as its applications are up."""

    frontend_cpus: float = 0.5
    """CPUs that Ray sets aside for a frontend."""
    frontend_resources: dict[str, float] = {}
    """Custom resources that a frontend takes, which tell Ray where to place it."""
    stage_cpus: float = 0.1
    """CPUs that Ray sets aside for a stage replica."""
    runtime_env: dict[str, Any] = {}
    """Ray runtime environment of all processes, such as {"working_dir": ...}; it must have Partita and the models."""
    frontend: dict[str, Any] = {}
    """Settings of the frontend, by the names of `frontend.FrontendSettings`."""
    drain_seconds: float = 30.0
    """How long a replica that is retired may take to finish the batches that it has."""
    health_check_seconds: float = 2.0
    """How often Serve asks a replica whether it is well; a dead one is replaced after this."""


def frontend_application(
    session: InferenceSession,
    plan: PipelinePlan,
    profiles: Mapping[tuple[str, str], Profile],
    pools: Mapping[str, GPUPool],
    options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
) -> dict[str, Any]:
    """The application of the session's frontend, serving `plan` as soon as the plan's replicas are up.

    With another plan than before, the frontend goes on with the old one until every stage of the new one has a
    replica, then switches between two batches. Profiles are by (module, pool), pools by name.
    """
    bandwidth = {name: float(pool.spec.bandwidth) for name, pool in pools.items()}
    serving = epoch(session, plan, profiles, bandwidth)
    return {
        "name": frontend_name(session.key),
        "route_prefix": route_prefix(session.key),
        "import_path": "partita_runtime.serving.frontend:application",
        "runtime_env": options.runtime_env,
        "args": {"session_key": session.key, "settings": options.frontend},
        "deployments": [
            {
                "name": FRONTEND,
                "num_replicas": session.spec.frontend.replicas,
                "max_ongoing_requests": 100_000,
                "user_config": serving.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                "graceful_shutdown_timeout_s": options.drain_seconds,
                "health_check_period_s": options.health_check_seconds,
                # Requests are counted, by how they end; a line in the log for each of them would only cost time.
                "logging_config": {"enable_access_log": False},
                "ray_actor_options": {
                    "num_cpus": options.frontend_cpus,
                    **({"resources": options.frontend_resources} if options.frontend_resources else {}),
                },
            }
        ],
    }


def stage_applications(
    session: InferenceSession,
    plan: PipelinePlan,
    profiles: Mapping[tuple[str, str], Profile],
    pools: Mapping[str, GPUPool],
    replicas: Mapping[StageRef, int],
    options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
) -> list[dict[str, Any]]:
    """The applications of all stages of `plan`, with as many replicas as `replicas` says, else as planned."""
    return [
        _stage_application(
            session, plan.metadata.name, module.name, pipeline, number, profiles, pools, replicas, options
        )
        for module in plan.spec.modules
        for pipeline in module.pipelines
        for number in range(len(pipeline.stages))
    ]


def _stage_application(
    session: InferenceSession,
    plan: str,
    module: str,
    pipeline: PooledPipeline,
    number: int,
    profiles: Mapping[tuple[str, str], Profile],
    pools: Mapping[str, GPUPool],
    replicas: Mapping[StageRef, int],
    options: ServingOptions,
) -> dict[str, Any]:
    ref = StageRef(module, pipeline.name, number)
    stage = pipeline.stages[number]
    pool, profile = pools[stage.pool], profiles[module, stage.pool]
    arguments = StageArguments(
        session_key=session.key,
        plan=plan,
        module=module,
        pipeline=pipeline.name,
        stage=number,
        pool=stage.pool,
        profile=profile.key,
        build=stage_build(session.spec, module, stage, pipeline.batch_size, profile, pool),
    )
    return {
        "name": stage_name(session.key, plan, ref),
        "route_prefix": None,
        "import_path": "partita_runtime.serving.stage:application",
        "runtime_env": options.runtime_env,
        "args": arguments.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "deployments": [
            {
                "name": STAGE,
                "num_replicas": replicas.get(ref, stage.replicas),
                # The replica drains itself once Serve lets it go, so Serve's own wait (it sees no request) is short.
                "graceful_shutdown_wait_loop_s": 0.1,
                "graceful_shutdown_timeout_s": options.drain_seconds,
                "health_check_period_s": options.health_check_seconds,
                "ray_actor_options": _stage_actor_options(pool, stage.vgpu_divisor, options),
            }
        ],
    }


def _stage_actor_options(pool: GPUPool, divisor: int, options: ServingOptions) -> dict[str, Any]:
    """Where a replica is placed, and which share of an accelerator it gets."""
    share = floor(10_000 / divisor) / 10_000  # Ray counts in ten-thousandths, and all shares must fit
    # Serve takes a stage replica, the only deployment of its application, for one that is reached by HTTP, and would
    # keep it up for half a minute so that load balancers forget it.
    environment = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0"}
    if pool.spec.sharing.mode is SharingMode.MPS and has_gpus(pool):
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // divisor)
    return {
        "num_cpus": options.stage_cpus,
        "num_gpus": share if has_gpus(pool) else 0,
        "resources": {pool.ray_resource: share},
        "runtime_env": {"env_vars": environment},
    }
