"""Builds the executor of a stage: the one entry for stage replicas."""

from partita_runtime.execution.emulated import EmulatedExecutor
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.stage_build import StageBuild


def build_executor(build: StageBuild) -> BuiltExecutor:
    """Load the stage's blocks on its device, ready to run.

    A backend or device that cannot be had falls back to the next one, with a warning in the answer.
    Raises ModelError if the model itself cannot be served.
    """
    if build.emulation is not None:
        return BuiltExecutor(
            executor=EmulatedExecutor(build.emulation),
            backend_used="Emulated",
            device_used="none",
            inputs=build.emulation.inputs,
            outputs=build.emulation.outputs,
        )
    from partita_runtime.execution.torch_build import build_torch_executor  # torch only where a model is run

    return build_torch_executor(build)


def warmed(build: StageBuild) -> BuiltExecutor:
    """The executor of a stage, run once at every batch size. Raises ModelError, as `build_executor`."""
    built = build_executor(build)
    built.executor.warm_up(range(1, build.max_batch + 1))
    return built
