"""The Serve applications of a session, as Serve's declarative configuration. Pure and deterministic.

There is one application for the frontend and a small one for every stage (partition pool) of a plan. Changed `args`
would restart an application. So everything that changes while it runs is in `num_replicas` (how many vGPUs) and
`user_config` (which plan the frontend serves), which change in place.
"""

from collections.abc import Mapping, Sequence
from math import floor
from typing import Any

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSession
from partita_api.meta import SpecModel
from partita_api.pipelineplan import PipelinePlan, Stage
from partita_api.pool.ray_resource import digest_of
from partita_api.profile import Profile
from partita_api.session.request_log import RequestLog
from partita_runtime.scheduling.events import StageRef
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.deploy.epochs import CheckState, epoch
from partita_runtime.serving.deploy.monitoring_access import with_monitoring
from partita_runtime.serving.deploy.names import (
    FRONTEND,
    STAGE,
    SUBCLUSTER,
    ApplicationName,
    frontend_name,
    parse_application,
    route_prefix,
    stage_name,
    subcluster_name,
)
from partita_runtime.serving.deploy.stage_arguments import (
    StageArguments,
    SubclusterArguments,
    SubclusterModels,
    has_gpus,
    stage_build,
)
from partita_runtime.serving.deploy.version_routes import VersionRoute
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.tls_files import TlsFiles

__all__ = [
    "ApplicationName",
    "ServingOptions",
    "frontend_application",
    "frontend_name",
    "holding_both",
    "parse_application",
    "route_prefix",
    "stage_applications",
    "stage_name",
]


class ServingOptions(SpecModel):
    """Options of a session's processes. They never change while its applications run."""

    frontend_cpus: float = 0.5
    """CPUs that Ray reserves for a frontend."""
    frontend_resources: dict[str, float] = {}
    """Ray's custom resources of a frontend, which decide its placement."""
    stage_cpus: float = 0.1
    """CPUs that Ray reserves for a stage replica."""
    runtime_env: dict[str, Any] = {}
    """Ray runtime environment of all processes, such as {"working_dir": ...}; it must have Partita and the models."""
    monitoring_digest: str = ""
    """Of the token with which a frontend's measurements are read; empty: nobody reads them."""
    frontend: dict[str, Any] = {}
    """Settings of the frontend, as in `session.settings.FrontendSettings`."""
    transport: TransportKind = TransportKind.STREAMS
    """The kind of transport between the processes."""
    tls: TlsFiles | None = None
    """The certificate of the processes, for TLS between them; None without TLS."""
    drain_seconds: float = 30.0
    """How long a replica may take to finish its batches before it ends."""
    health_check_seconds: float = 2.0
    """How often Serve checks the health of a stage replica."""
    frontend_health_check_seconds: float = 0.2
    """How often Serve checks the health of a frontend; without its frontend a session does not answer."""


def frontend_application(
    session: InferenceSession,
    plan: PipelinePlan,
    profiles: Mapping[tuple[str, str], Profile],
    pools: Mapping[str, GPUPool],
    options: ServingOptions = ServingOptions(),  # noqa: B008 - it is frozen
    clients: AllowedClients | None = None,
    versions: tuple[VersionRoute, ...] = (),
    request_log: RequestLog | None = None,
    check: CheckState | None = None,
) -> dict[str, Any]:
    """The application of the session's frontend. It serves `plan` once its replicas are ready, if `check` lets it.

    Until then it serves the previous plan. It answers `clients` only, None for everybody, sends requests for other
    `versions` on, and logs requests by `request_log`, None for nowhere. Profiles are by (module, pool), pools by name.
    """
    bandwidth = {name: float(pool.spec.bandwidth) for name, pool in pools.items()}
    serving = epoch(session, plan, profiles, bandwidth, clients, versions, request_log, check)
    return {
        "name": frontend_name(session.key),
        "route_prefix": route_prefix(session.key),
        "import_path": "partita_runtime.serving.frontend:application",
        "runtime_env": with_monitoring(options.runtime_env, options.monitoring_digest),
        "args": {
            "session_key": session.key,
            "settings": options.frontend,
            **({} if options.transport is TransportKind.STREAMS else {"transport": options.transport.value}),
            **({} if options.tls is None else {"tls": options.tls.model_dump()}),
        },
        "deployments": [
            {
                "name": FRONTEND,
                "num_replicas": session.spec.frontend.replicas,
                "max_ongoing_requests": 100_000,
                "user_config": serving.user_config(),
                "graceful_shutdown_timeout_s": options.drain_seconds,
                "health_check_period_s": options.frontend_health_check_seconds,
                # Requests are counted by outcome; a log line for each would cost time.
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
    """The applications of all stages of `plan`, with the numbers of replicas in `replicas`, else those of the plan.

    A stage of 0 replicas has no application. The stages of a sub-cluster share one application, which has the largest
    of their numbers of replicas.
    """
    alone: list[dict[str, Any]] = []
    together: dict[str, list[tuple[StageArguments, Stage, int]]] = {}
    for module, pipeline, number, stage in plan.spec.stages():
        ref = StageRef(module.name, pipeline.name, number)
        count = replicas.get(ref, stage.replicas)
        if count == 0:
            continue  # Serve has no deployments of 0 replicas
        pool = pools[stage.pool]
        profile = profiles[module.name, stage.pool]
        arguments = _arguments(session, plan.metadata.name, ref, stage, pipeline.batch_size, profile, pool)
        if stage.subcluster is None:
            alone.append(_stage_application(arguments, stage, count, pool, options))
        else:
            together.setdefault(stage.subcluster, []).append((arguments, stage, count))
    shared = [
        _subcluster_application(name, members, pools[members[0][1].pool], options) for name, members in together.items()
    ]
    return [*alone, *shared]


def holding_both(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The application of a sub-cluster whose vGPUs have the models of two plans, during a change of plan.

    It has the larger number of replicas; everything else is as in `new`.
    """
    (before,), (after,) = old["deployments"], new["deployments"]
    kept = [stage for stage in before["user_config"]["stages"] if stage not in after["user_config"]["stages"]]
    user_config = {**after["user_config"], "stages": [*kept, *after["user_config"]["stages"]]}
    count = max(before["num_replicas"], after["num_replicas"])
    return {**new, "deployments": [{**after, "num_replicas": count, "user_config": user_config}]}


def _arguments(
    session: InferenceSession,
    plan: str,
    ref: StageRef,
    stage: Stage,
    batch_size: int,
    profile: Profile,
    pool: GPUPool,
) -> StageArguments:
    static, dynamic = 0, 0
    if stage.subcluster is not None:
        static, dynamic = profile.memory_bytes(stage.blocks.first, stage.blocks.end, batch_size)
    return StageArguments(
        session_key=session.key,
        plan=plan,
        module=ref.module,
        pipeline=ref.pipeline,
        stage=ref.stage,
        pool=stage.pool,
        profile=profile.key,
        build=stage_build(session.spec, ref.module, stage, batch_size, profile, pool),
        static_bytes=static,
        dynamic_bytes=dynamic,
    )


def _subcluster_application(
    subcluster: str,
    members: Sequence[tuple[StageArguments, Stage, int]],
    pool: GPUPool,
    options: ServingOptions,
) -> dict[str, Any]:
    first, stage, _ = members[0]
    memory = pool.spec.memory
    arguments = SubclusterArguments(
        session_key=first.session_key, subcluster=subcluster, transport=options.transport, tls=options.tls
    )
    models = SubclusterModels(
        stages=tuple(member for member, _, _ in members),
        memory_bytes=None if memory is None else int(float(memory) / stage.vgpu_divisor),
    )
    return {
        "name": subcluster_name(first.session_key, _pods_of(stage, pool), stage.vgpu_divisor, subcluster),
        "route_prefix": None,
        "import_path": "partita_runtime.serving.subcluster:application",
        "runtime_env": options.runtime_env,
        "args": arguments.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "deployments": [
            {
                **_vgpus(SUBCLUSTER, max(count for _, _, count in members), pool, stage.vgpu_divisor, options),
                "user_config": models.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            }
        ],
    }


def _pods_of(stage: Stage, pool: GPUPool) -> str:
    """The pool's name; with a session's pod template also what identifies it, because vGPUs do not change pods."""
    template = digest_of(pool.ray_resource)
    return f"{stage.pool}.{template}" if template else stage.pool


def _stage_application(
    arguments: StageArguments, stage: Stage, count: int, pool: GPUPool, options: ServingOptions
) -> dict[str, Any]:
    ref = StageRef(arguments.module, arguments.pipeline, arguments.stage)
    arguments = arguments.model_copy(update={"transport": options.transport, "tls": options.tls})
    return {
        "name": stage_name(arguments.session_key, arguments.plan, ref),
        "route_prefix": None,
        "import_path": "partita_runtime.serving.stage:application",
        "runtime_env": options.runtime_env,
        "args": arguments.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "deployments": [_vgpus(STAGE, count, pool, stage.vgpu_divisor, options)],
    }


def _vgpus(name: str, count: int, pool: GPUPool, divisor: int, options: ServingOptions) -> dict[str, Any]:
    """A deployment whose replicas are one vGPU each."""
    return {
        "name": name,
        "num_replicas": count,
        # The replica drains itself in __del__; Serve does not see its batches, so Serve's own wait is short.
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": options.drain_seconds,
        "health_check_period_s": options.health_check_seconds,
        "ray_actor_options": _stage_actor_options(pool, divisor, options),
    }


def _stage_actor_options(pool: GPUPool, divisor: int, options: ServingOptions) -> dict[str, Any]:
    """The placement of a replica, and its share of an accelerator."""
    share = floor(10_000 / divisor) / 10_000  # Ray counts in ten-thousandths, and all shares must fit
    # Serve treats the only deployment of an application as one behind HTTP, and would keep its replicas for half a
    # minute until load balancers have forgotten them.
    environment = {"RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0"}
    if pool.spec.sharing.mode is SharingMode.MPS and has_gpus(pool):
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // divisor)
    return {
        "num_cpus": options.stage_cpus,
        "num_gpus": share if has_gpus(pool) else 0,
        "resources": {pool.ray_resource: share},
        "runtime_env": {"env_vars": environment},
    }
