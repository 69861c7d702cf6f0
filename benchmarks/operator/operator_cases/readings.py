"""What is read off the operator's process, its audited requests, and the API server's fairness."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from partita_devtools.control_plane.audit import AuditedRequest, read_audit_log
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.processes import identify

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 1024.0
LEASES: Final = "leases"


@dataclass(frozen=True)
class Reading:
    """One moment."""

    at: float
    cpu_seconds: float
    """Of the operator."""
    memory_mib: float
    peak_mib: float
    passes: float
    looked_at: int
    """Sessions that this process of the operator has looked at."""
    ready: int
    requests: tuple[AuditedRequest, ...]
    """The operator's requests since the reading before."""


class Reader:
    """Reads one operator and the API server behind it."""

    def __init__(self, pid: int, metrics_port: int, plane: ControlPlane) -> None:
        self._pid = pid
        self._plane = plane
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._operator = httpx.Client(trust_env=False, timeout=30)
        _, self._logged = read_audit_log(plane.audit_log)

    def read(self) -> Reading:
        """A reading; the operator must serve its metrics already."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        memory = {
            line.split(":")[0]: line.split()[1]
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines()
            if line.startswith(("VmRSS", "VmHWM"))
        }
        passes, looked_at, ready = 0.0, 0, 0
        # There are thousands of samples. A real parser of them would take more time than the operator.
        for line in self._operator.get(self._metrics).text.splitlines():
            if line.startswith("partita_reconcile_total{"):
                passes += float(line.rpartition(" ")[2])
            elif line.startswith("partita_engine_up{"):
                looked_at += 1
            elif line.startswith("partita_session_condition{") and 'condition="Ready"' in line:
                ready += line.endswith(" 1.0")
        requests, self._logged = read_audit_log(self._plane.audit_log, self._logged)
        return Reading(
            at=time.monotonic(),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
            memory_mib=int(memory["VmRSS"]) / _MIB,
            peak_mib=int(memory["VmHWM"]) / _MIB,
            passes=passes,
            looked_at=looked_at,
            ready=ready,
            requests=tuple(requests),
        )


def by_resource(requests: Iterable[AuditedRequest]) -> dict[str, dict[str, int]]:
    """How many requests of each resource and verb."""
    counted = Counter((request.resource, request.verb) for request in requests)
    result: dict[str, dict[str, int]] = {}
    for (resource, verb), count in sorted(counted.items()):
        result.setdefault(resource, {})[verb] = count
    return result


def writes(requests: Iterable[AuditedRequest]) -> int:
    """How many of the requests write; without those of the Lease, which is renewed by time."""
    return sum(request.is_write and request.resource != LEASES for request in requests)


def fairness(plane: ControlPlane) -> dict[str, dict[str, float]]:
    """By priority level: requests that waited, the longest class of waits in seconds, and refused requests (429)."""
    with httpx.Client(
        base_url=plane.url, headers={"Authorization": f"Bearer {plane.token}"}, verify=False, trust_env=False
    ) as api:
        text = api.get("/metrics").text
    levels: dict[str, dict[str, float]] = {}
    for name, level, value in _flow_control(text):
        levels.setdefault(level, {}).setdefault(name, 0)
        levels[level][name] += value
    return levels


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 once it has ended."""
    if identify(pid) is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _flow_control(text: str) -> Iterator[tuple[str, str, float]]:
    names = {
        "apiserver_flowcontrol_dispatched_requests_total": "dispatched",
        "apiserver_flowcontrol_rejected_requests_total": "rejected",
        "apiserver_flowcontrol_request_wait_duration_seconds_sum": "waited_seconds",
    }
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in names:
                yield names[sample.name], sample.labels["priority_level"], sample.value
