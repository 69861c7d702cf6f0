"""The settings of a demonstration."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from partita_devtools.demo.machine import Machine


@dataclass(frozen=True)
class LoadPhase:
    """A phase of the load."""

    name: str
    factor: float
    """Multiple of the session's declared rate."""
    seconds: float


DEFAULT_PHASES = (
    LoadPhase("planned load", 1.0, 40.0),
    LoadPhase("double load", 2.0, 20.0),
    LoadPhase("planned load again", 1.0, 20.0),
)


@dataclass(frozen=True)
class DemoConfig:
    """A demonstration on a running development environment with a running operator."""

    example: Path
    """Folder of the example, such as examples/ocr."""
    command: str = "partita demo"
    """Starts the demonstration, and what it needs, again."""
    namespace: str = "default"
    """For a session whose manifest names none."""
    phases: tuple[LoadPhase, ...] = DEFAULT_PHASES
    payloads: int = 32
    """Number of different requests, which are sent in turn."""
    verified_requests: int = 4
    """Requests whose answers are compared with those of the whole models; 0 for none."""
    seed: int = 0
    machine: Machine | None = None
    """If given, the session declares only the rate that this machine can carry."""
    rate: int | None = None
    """Requests per second to declare, in place of the manifest's and of what the machine can carry."""
    ready_timeout_s: float = 1200.0
    """Time limit until the session serves; profiling takes most of it."""
    started: float = field(default_factory=time.monotonic)
    """When the command started, on the clock of `time.monotonic`."""
