"""What is read off the operator's process and the API server, without asking the API server for objects."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_OURS: Final = frozenset(
    {"gpupools", "inferencesessions", "pipelineplans", "configmaps", "nodes", "events", "leases"},
)
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 1024.0


@dataclass(frozen=True)
class Reading:
    """One moment."""

    at: float
    cpu_seconds: float
    memory_mib: float
    peak_mib: float
    passes: float
    pass_seconds: float
    ready: int
    requests: Counter[tuple[str, str]]
    """Requests of the API server so far, by verb and resource."""


class Reader:
    """Reads one operator and the API server behind it."""

    def __init__(self, pid: int, metrics_port: int, api_server: str, token: str) -> None:
        self._pid = pid
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._api = httpx.Client(
            base_url=api_server, headers={"Authorization": f"Bearer {token}"}, verify=False, trust_env=False, timeout=30
        )
        self._operator = httpx.Client(trust_env=False, timeout=30)

    def read(self) -> Reading:
        """A reading; the operator must serve its metrics already."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rsplit(")", 1)[1].split()
        memory = {
            line.split(":")[0]: line.split()[1]
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines()
            if line.startswith(("VmRSS", "VmHWM"))
        }
        passes, pass_seconds, ready = 0.0, 0.0, 0
        for family in text_string_to_metric_families(self._operator.get(self._metrics).text):
            for sample in family.samples:
                if sample.name == "partita_reconcile_total":
                    passes += sample.value
                elif sample.name == "partita_reconcile_seconds_sum":
                    pass_seconds += sample.value
                elif sample.name == "partita_session_condition" and sample.labels["condition"] == "Ready":
                    ready += int(sample.value)
        return Reading(
            at=time.monotonic(),
            cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
            memory_mib=int(memory["VmRSS"]) / _MIB,
            peak_mib=int(memory["VmHWM"]) / _MIB,
            passes=passes,
            pass_seconds=pass_seconds,
            ready=ready,
            requests=self._requests(),
        )

    def _requests(self) -> Counter[tuple[str, str]]:
        counted: Counter[tuple[str, str]] = Counter()
        for family in text_string_to_metric_families(self._api.get("/metrics").text):
            if family.name != "apiserver_request":
                continue
            for sample in family.samples:
                if sample.name == "apiserver_request_total" and sample.labels.get("resource") in _OURS:
                    counted[sample.labels["verb"], sample.labels["resource"]] += int(sample.value)
        return counted


def between(before: Reading, after: Reading) -> dict[str, dict[str, int]]:
    """Requests between two readings: by resource, by verb."""
    result: dict[str, dict[str, int]] = {}
    for (verb, resource), count in sorted((after.requests - before.requests).items()):
        result.setdefault(resource, {})[verb] = count
    return result


def writes(requests: dict[str, dict[str, int]]) -> int:
    """How many of them changed something."""
    return sum(count for verbs in requests.values() for verb, count in verbs.items() if verb in WRITES)
