"""Whether names of Services resolve: not every cluster has a DNS."""

import asyncio
import os
import socket
from typing import Final

NAME: Final = "kubernetes.default.svc"
"""The Service that every cluster has, in the form of the addresses of sessions."""
IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets this variable in every pod."""
CHECK_S: Final = 20.0
"""Between two checks."""
_FAILURES: Final = 2
"""After so many failed checks in a row there is no DNS. A restart of its pods is shorter."""


class ClusterDns:
    """Resolves a name again and again, if the operator runs in a pod. Elsewhere nothing is known."""

    def __init__(self, name: str = NAME) -> None:
        self._name = name
        self._works: bool | None = None
        self._failures = 0

    @property
    def works(self) -> bool | None:
        """Whether the name resolves; None if that is not known."""
        return self._works

    async def watch(self) -> None:
        """Check until cancelled."""
        while IN_POD in os.environ:
            await self.check()
            await asyncio.sleep(CHECK_S)

    async def check(self) -> None:
        """Resolve the name once."""
        try:
            await asyncio.get_running_loop().getaddrinfo(self._name, None, type=socket.SOCK_STREAM)
        except OSError:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._works = False
        else:
            self._failures, self._works = 0, True
