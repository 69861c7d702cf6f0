"""Builds the executor of a stage: the one entry for stage replicas."""

from partita_runtime.execution.emulation import EmulatedExecutor
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.shared_weights import SharedWeights
from partita_runtime.execution.stage_build import StageBuild


def build_executor(build: StageBuild, weights: SharedWeights | None = None) -> BuiltExecutor:
    """Load the stage's blocks on its device, ready to run. It takes those of the `weights` that are its own.

    A backend or device that is not available is replaced by the next one, with a warning in the result.
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
    from partita_runtime.execution.torch_build import build_torch_executor  # emulated stages need no torch

    return build_torch_executor(build, weights)


def warmed(build: StageBuild, weights: SharedWeights | None = None) -> BuiltExecutor:
    """Build the executor of a stage and run it once at every batch size. Raises ModelError like `build_executor`."""
    built = build_executor(build, weights)
    built.executor.warm_up(range(1, build.max_batch + 1))
    return built
