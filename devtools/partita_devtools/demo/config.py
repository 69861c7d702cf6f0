"""What to demonstrate, and how long."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LoadPhase:
    """A stretch of load to send."""

    name: str
    factor: float
    """Times the rate that the session declares."""
    seconds: float


DEFAULT_PHASES = (
    LoadPhase("planned load", 1.0, 60.0),
    LoadPhase("double load", 2.0, 30.0),
    LoadPhase("planned load again", 1.0, 30.0),
)


@dataclass(frozen=True)
class DemoConfig:
    """A demonstration on a running development environment with a running operator."""

    example: Path
    """Folder of the example, such as examples/traffic."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG, or ~/.kube/config."""
    namespace: str = "default"
    """For a session whose manifest names none."""
    phases: tuple[LoadPhase, ...] = DEFAULT_PHASES
    payloads: int = 32
    """Different requests to send, in turn."""
    verified_requests: int = 4
    """Requests whose answers are compared with those of the whole models; 0 for none."""
    seed: int = 0
    ready_timeout_s: float = 1200.0
    """Most seconds until the session serves; profiling is most of it."""
    operator_log: Path | None = None
    """Named in errors, if given."""
