"""Builds executors that compute with torch."""

from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.stage_build import StageBuild


def build_torch_executor(build: StageBuild) -> BuiltExecutor:
    """The stage's blocks on its device, by the backend that was asked for or the one it falls back to."""
    raise NotImplementedError(build)
