"""The arguments of stage replicas and of sub-clusters' vGPUs, made from session, plan, profile and pool."""

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.inferencesession import InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.pipelineplan import Stage
from partita_api.profile import Profile
from partita_api.session.size_classes import size_classes
from partita_runtime.execution.stage_build import Device, StageBuild, batch_latencies, emulated_stage
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.tls_files import TlsFiles


class StageArguments(SpecModel):
    """The `args` of a stage application. They never change while it exists."""

    session_key: str
    plan: str
    module: str
    pipeline: str
    stage: int
    pool: str
    profile: str
    """Content key of the profile that the plan was made from."""
    build: StageBuild
    static_bytes: int = 0
    """Memory of its weights while it is loaded; 0 if the profile does not have it."""
    dynamic_bytes: int = 0
    """Additional memory of a batch of the largest size while it runs."""
    transport: TransportKind = TransportKind.STREAMS
    """How it listens for batches, if it has its own process."""
    tls: TlsFiles | None = None
    """The certificate of that process; None without TLS."""


class SubclusterArguments(SpecModel):
    """The `args` of a sub-cluster's application. They never change while it exists."""

    session_key: str
    subcluster: str
    transport: TransportKind = TransportKind.STREAMS
    """How its replicas listen for batches."""
    tls: TlsFiles | None = None
    """The certificate of its replicas; None without TLS."""


class SubclusterModels(SpecModel):
    """The `user_config` of a sub-cluster: the models of each vGPU. It changes in place, replica by replica."""

    stages: tuple[StageArguments, ...]
    memory_bytes: int | None = None
    """Memory of a vGPU; None if it is not known."""


def stage_build(
    session: InferenceSessionSpec, module: str, stage: Stage, batch_size: int, profile: Profile, pool: GPUPool
) -> StageBuild:
    """How a replica of the stage builds its executor: a real one on its device, or an emulated one of the pool.

    Raises KeyError or ValueError if the profile does not cover the stage.
    """
    classes = [(declared, each.module) for declared in session.modules for each in size_classes(declared)]
    ((declared, source),) = [found for found in classes if found[1].name == module]
    if source.model is None:
        raise ValueError(f"module {module!r} has no model, so it has no stages")
    first, end = stage.blocks.first, stage.blocks.end
    emulation = pool.spec.emulation
    emulated = emulation is not None and bool(emulation.curves)
    return StageBuild(
        model=source.model,
        input=source.input,
        inputs=source.inputs,
        blocks=session.planner.blocks,
        first=first,
        end=end,
        partition=None if emulated else profile.partition,
        content=None if emulated else profile.content,
        backend=session.execution.backend,
        device=Device.CUDA if has_gpus(pool) else Device.CPU,
        cut_dtype=session.execution.cut_dtype,
        max_batch=batch_size,
        any_size=declared.size_step is not None,
        latency_micros=batch_latencies(profile, first, end, divisor=stage.vgpu_divisor, max_batch=batch_size)
        if emulation is not None and emulation.slowdown is not None
        else None,
        emulation=emulated_stage(
            profile,
            first,
            end,
            divisor=stage.vgpu_divisor,
            max_batch=batch_size,
            cut_dtype=session.execution.cut_dtype,
        )
        if emulated
        else None,
    )


def has_gpus(pool: GPUPool) -> bool:
    """Whether the pool has real GPUs."""
    return pool.spec.emulation is None and pool.spec.sharing.mode is not SharingMode.CPU
