"""The audit log of a control plane: what the audited users asked of the API server, and how it answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
"""The verbs that change something."""


@dataclass(frozen=True)
class AuditedRequest:
    """One answered request."""

    user: str
    verb: str
    """As RBAC names it, such as `list` or `patch`."""
    resource: str
    """Plural, with the subresource: `inferencesessions/status`. Empty if the request is about no resource."""
    namespace: str
    name: str
    """Of the object; empty for a list."""
    code: int
    """HTTP status of the answer."""

    @property
    def is_write(self) -> bool:
        """Whether the request changed something, or would have if it had not been refused."""
        return self.verb in WRITES

    @property
    def is_throttled(self) -> bool:
        """Whether the API server refused the request because of too many."""
        return self.code == HTTPStatus.TOO_MANY_REQUESTS


def read_audit_log(log: Path, since: int = 0) -> tuple[list[AuditedRequest], int]:
    """The requests that were logged after the first `since` bytes, and how many bytes there are now.

    A watch is logged when it ends.
    """
    if not log.exists():
        return [], since
    with log.open("rb") as file:
        file.seek(since)
        lines = file.readlines()
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # it is still being written
    return list(_requests(lines)), since + sum(map(len, lines))


def _requests(lines: Iterable[bytes]) -> Iterator[AuditedRequest]:
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        if event["stage"] != "ResponseComplete":
            continue
        about = event.get("objectRef") or {}
        yield AuditedRequest(
            user=event["user"]["username"],
            verb=event["verb"],
            resource="/".join(filter(None, (about.get("resource"), about.get("subresource")))),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
        )
