"""Waits for the session to serve, and records the changes of its conditions."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from partita_api.conditions import Condition, ConditionType
from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.sessions.objects import observe
from partita_devtools.sessions.progress import ServingProgress
from partita_devtools.sessions.snapshot import ConditionChange, SessionSnapshot, changes
from partita_operator.kube.client import KubernetesClient

_LOOK_EVERY_S = 0.5
_REPORT_EVERY_S = 10.0


class SessionStalledError(DevError):
    """The session serves only after a change of its manifest or of the pools."""


@dataclass
class SessionWatch:
    """Observes a session and its pools; reports and records each change of a condition."""

    client: KubernetesClient
    session: InferenceSession
    pools: tuple[GPUPool, ...]
    report: Report
    serve_url: str = ""
    """How the session's URL begins. Until the operator looks, the status has the URL of an environment before."""
    started: float = field(default_factory=time.monotonic)
    timeline: list[ConditionChange] = field(default_factory=list)
    _seen: dict[tuple[str, str], Condition] = field(default_factory=dict)

    def elapsed(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self.started

    async def look(self) -> SessionSnapshot:
        """The objects as they are now."""
        found = await observe(self.client, self.session, self.pools)
        now = found.conditions()
        news = changes(self._seen, now, self.elapsed())
        for change in news:
            self.timeline.append(change)
            if not _repeats_another(change, news):
                self.report(
                    f"[{change.at_s:6.1f} s] {change.object}: {change.type}={change.status} "
                    f"{change.reason}: {change.message}"
                )
        self._seen = now
        return found

    async def until_serving(self, timeout_s: float, advice: str) -> SessionSnapshot:
        """Wait until the session serves.

        Raises SessionStalledError if it needs a change, and DevError if it takes too long; `advice` says where to find
        out more.
        """
        progress, next_report_s = ServingProgress(timeout_s), _REPORT_EVERY_S
        while not self._serves(found := await self.look()):
            line = progress.line(found, self.elapsed())
            if self.elapsed() >= next_report_s:
                next_report_s = self.elapsed() + _REPORT_EVERY_S
                self.report(f"[{self.elapsed():6.1f} s] {self.session.kind} {self.session.metadata.name}: {line}")
            if found.obstacle is not None:
                raise SessionStalledError(f"the session cannot be served: {found.obstacle}\n{advice}")
            if self.elapsed() > timeout_s:
                raise DevError(
                    f"the session does not serve after {timeout_s:.0f} s; its conditions:\n{_as_lines(found)}\n{advice}"
                )
            await asyncio.sleep(_LOOK_EVERY_S)
        return found

    def _serves(self, found: SessionSnapshot) -> bool:
        return found.serves and str(found.session.status.url).startswith(self.serve_url)


def _repeats_another(change: ConditionChange, news: Sequence[ConditionChange]) -> bool:
    """Ready repeats the message of the condition that it waits for."""
    return change.type == ConditionType.READY and any(
        other.type != change.type and other.object == change.object and other.message == change.message
        for other in news
    )


def _as_lines(found: SessionSnapshot) -> str:
    lines = [f"  {c.type}={c.status} {c.reason}: {c.message}" for c in found.session.status.conditions]
    return "\n".join(lines) or "  none; does the operator run?"
