"""CPU time of the processes of a local Ray cluster, and of this one, by what they do for a request."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_MARK: Final = "PARTITA_BENCHMARK_PID"
_TICK: Final = os.sysconf("SC_CLK_TCK")

CpuTimes = Mapping[tuple[str, int], float]
"""Seconds that each process has used, by role and pid."""


def marked_environment() -> dict[str, str]:
    """What a cluster's processes must have in their environment to be found."""
    return {_MARK: str(os.getpid())}


def cpu_times() -> CpuTimes:
    """What this process and its cluster's have used so far."""
    own = os.times()
    return {("client", os.getpid()): own.user + own.system, **dict(_of_cluster())}


def micros_by_role(before: CpuTimes, after: CpuTimes, requests: int) -> dict[str, float]:
    """Microseconds for each of so many requests that came between the two."""
    used: Counter[str] = Counter()
    for process, seconds in after.items():
        used[process[0]] += seconds - before.get(process, 0.0)
    return {role: round(1e6 * seconds / requests, 1) for role, seconds in sorted(used.items())}


def _of_cluster() -> Iterator[tuple[tuple[str, int], float]]:
    mark = f"{_MARK}={os.getpid()}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        yield (_role(title), int(entry.name)), (int(fields[11]) + int(fields[12])) / _TICK


def _role(title: str) -> str:
    if "haproxy" in title.lower() or title.startswith("ray::Proxy"):
        return "proxy"
    if not title.startswith("ray::ServeReplica:"):
        return "rest of Ray"
    return "frontend" if title.endswith(":frontend") else "replicas"
