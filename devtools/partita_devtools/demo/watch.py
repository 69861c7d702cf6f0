"""Waits for the session to serve, and records the changes of its conditions."""

import asyncio
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from partita_api.conditions import Condition, ConditionType
from partita_devtools.commands import Report
from partita_devtools.demo.conditions import ExampleSnapshot, changes
from partita_devtools.demo.config import DemoConfig
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example
from partita_devtools.demo.kubernetes import observe
from partita_devtools.demo.result import ConditionChange
from partita_operator.kube.client import KubernetesClient

_LOOK_EVERY_S = 0.5


@dataclass
class Watch:
    """Observes the example's objects; reports and records each change of a condition."""

    client: KubernetesClient
    example: Example
    report: Report
    started: float = field(default_factory=time.monotonic)
    timeline: list[ConditionChange] = field(default_factory=list)
    _seen: dict[tuple[str, str], Condition] = field(default_factory=dict)

    def elapsed(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self.started

    async def look(self) -> ExampleSnapshot:
        """The objects as they are now."""
        found = await observe(self.client, self.example)
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

    async def until_serving(self, config: DemoConfig) -> ExampleSnapshot:
        """Wait until the session serves. Raises DemoError if it needs a change or takes too long."""
        while not (found := await self.look()).serves:
            if found.obstacle is not None:
                raise DemoError(f"the session cannot be served: {found.obstacle}\n{self._more(config)}")
            if self.elapsed() > config.ready_timeout_s:
                raise DemoError(
                    f"the session does not serve after {config.ready_timeout_s:.0f} s; its conditions:\n"
                    f"{_as_lines(found)}\n{self._more(config)}"
                )
            await asyncio.sleep(_LOOK_EVERY_S)
        return found

    def _more(self, config: DemoConfig) -> str:
        session = self.example.session.metadata
        cluster = ["--kubeconfig", str(config.kubeconfig)] if config.kubeconfig else []
        command = ["kubectl", *cluster, "describe", "isess", session.name, "-n", str(session.namespace)]
        log = f"\nThe operator's log: {config.operator_log}" if config.operator_log else ""
        return f"More: {shlex.join(command)}{log}"


def _repeats_another(change: ConditionChange, news: Sequence[ConditionChange]) -> bool:
    """Ready repeats the message of the condition that it waits for."""
    return change.type == ConditionType.READY and any(
        other.type != change.type and other.object == change.object and other.message == change.message
        for other in news
    )


def _as_lines(found: ExampleSnapshot) -> str:
    lines = [f"  {c.type}={c.status} {c.reason}: {c.message}" for c in found.session.status.conditions]
    return "\n".join(lines) or "  none; does the operator run?"
