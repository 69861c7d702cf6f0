"""The load that this machine can carry: free memory, free cores, and the CPU time of a request."""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_devtools.demo.errors import DemoError
from partita_operator.cli.doctor.findings import Unknown
from partita_operator.cli.doctor.machine_checks import GIB
from partita_operator.cli.doctor.machine_facts import MemoryFacts

PLATFORM_CORES: Final = 0.4
"""Cores for Kubernetes, Ray and the operator."""
REQUEST_SECONDS: Final = 0.03
"""CPU time of a request outside its models: proxy, frontend, transport, and the load generator."""
SHARE: Final = 0.35
"""Share of the remaining cores for the planned load. The rest is for double load and bursts."""
LEAST_MEMORY_GIB: Final = 4.0
"""Memory for the API server, Ray, the operator and the models of an example that declares no memory, in GiB."""
LEAST_RATE: Final = 1
"""Requests per second even on a machine without a free core."""


@dataclass(frozen=True)
class Machine:
    """What a machine has for a demonstration."""

    cores: int
    free_cores: float
    """Idle cores, on average over the measurement."""

    @property
    def busy(self) -> float:
        """Share of the machine that other programs use."""
        return 1 - self.free_cores / self.cores


@dataclass(frozen=True)
class CpuTicks:
    """The time that the cores have spent since the machine started, in ticks."""

    idle: int
    total: int

    @staticmethod
    def now(stat: Path = Path("/proc/stat")) -> "CpuTicks":
        """The counters of all cores together. Time that a hypervisor gave to others counts as used."""
        fields = [int(field) for field in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return CpuTicks(fields[3] + fields[4], sum(fields))

    def machine_since(self, before: "CpuTicks") -> Machine:
        """What the machine had free between `before` and these ticks."""
        cores = os.cpu_count() or 1
        return Machine(cores, cores * (self.idle - before.idle) / max(1, self.total - before.total))


def measure_machine(seconds: float = 2.0) -> Machine:
    """Observe the machine for some seconds."""
    before = CpuTicks.now()
    time.sleep(seconds)
    return CpuTicks.now().machine_since(before)


def check_memory(memory: MemoryFacts | Unknown, needed_gib: float = LEAST_MEMORY_GIB) -> None:
    """Raises DemoError if too little is free. The kernel would kill some process in the middle."""
    if isinstance(memory, MemoryFacts) and memory.available < needed_gib * GIB:
        free, total = memory.available / GIB, memory.total / GIB
        raise DemoError(
            f"{free:.1f} of {total:.1f} GiB memory are free, and the demonstration needs {needed_gib:g}; "
            "stop other programs (the largest: ps aux --sort=-rss | head -5), or use a larger machine"
        )


def affordable_rate(declared: int, machine: Machine, model_seconds: float) -> int:
    """Requests per second for this machine, at most `declared`; `model_seconds` is the CPU time of its models.

    Emulated execution times hold only while the real work has cores to run on.
    """
    cores = max(0.0, machine.free_cores - PLATFORM_CORES)
    return min(declared, max(LEAST_RATE, math.floor(SHARE * cores / (model_seconds + REQUEST_SECONDS))))
