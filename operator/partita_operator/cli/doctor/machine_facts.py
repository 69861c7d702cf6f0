"""What is known of this machine. `machine_probe.py` reads it, `machine_checks.py` evaluates it."""

from dataclasses import dataclass
from pathlib import Path

from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.requirements import PackageSet


@dataclass(frozen=True)
class PythonFacts:
    """The Python interpreter that runs the command."""

    version: str
    required: str
    """Allowed versions, such as >=3.11."""
    fits: bool
    executable: str


@dataclass(frozen=True)
class CpuFacts:
    """CPUs and how busy they are."""

    usable: float
    """CPUs that this process may use: affinity and quota of its control group."""
    present: int
    """CPUs of the machine."""
    load: float | None
    """Average number of runnable processes in the last minute; None if the system does not say."""


@dataclass(frozen=True)
class MemoryFacts:
    """Memory in bytes, within the limit of the control group."""

    total: int
    available: int


@dataclass(frozen=True)
class DiskFacts:
    """The file system of a directory, in bytes."""

    path: Path
    free: int


@dataclass(frozen=True)
class TorchFacts:
    """The installed PyTorch. It is not imported."""

    version: str
    cuda: str | None
    """CUDA version that it was built for; None: for CPUs only."""


@dataclass(frozen=True)
class PortFacts:
    """A port that the operator listens on by default."""

    setting: str
    """Name of its setting, such as health.port."""
    flag: str
    """Flag of `partita operator run` that changes it."""
    port: int
    in_use: bool


@dataclass(frozen=True)
class MachineFacts:
    """All facts on this machine."""

    partita: str
    """Version of Partita."""
    python: PythonFacts
    core: PackageSet
    """What is always needed."""
    extras: tuple[PackageSet, ...]
    cpu: CpuFacts
    memory: MemoryFacts | Unknown
    disk: DiskFacts | Unknown
    torch: TorchFacts | None
    """None: not installed."""
    gpus: tuple[str, ...] | Unknown
    """The NVIDIA GPUs with memory and driver, one text each."""
    ports: tuple[PortFacts, ...]
