"""Acquires, renews and releases the Lease. docs/internals/reconciling.md says why the official elector is not used."""

import asyncio
import logging
import time
from collections.abc import Callable
from socket import gethostname
from typing import Protocol
from uuid import uuid4

from partita_operator.kube.errors import KubernetesError
from partita_operator.reconcile.leadership import (
    LOOKS_AFTER,
    RENEWS_AFTER,
    LeaseObservation,
    LeaseRecord,
    LeaseStep,
    next_step,
    observe,
    still_holds,
)

logger = logging.getLogger(__name__)


class LeadershipLostError(Exception):
    """Another replica may lead now. This one must not act any more: it ends, and Kubernetes restarts it."""


class Leases(Protocol):
    """The storage of the Lease."""

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is now; None if it does not exist."""

    async def write(self, record: LeaseRecord, over: LeaseRecord | None) -> LeaseRecord | None:
        """Write the Lease over the version `over`, or create it; None if another replica was first."""


class Leadership:
    """One replica's side of the election. Without `leases` there is only one replica, and it always leads."""

    def __init__(
        self,
        leases: Leases | None,
        duration_seconds: int,
        identity: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity or f"{gethostname()}_{uuid4().hex[:8]}"
        self._leases = leases
        self._duration = duration_seconds
        self._clock = clock
        self._seen: LeaseObservation | None = None
        self._renewed: float | None = None

    @property
    def leads(self) -> bool:
        """Whether this replica may act now."""
        return self._leases is None or still_holds(self._renewed, self._duration, self._clock())

    def ensure(self) -> None:
        """Raise LeadershipLostError unless this replica may act now."""
        if not self.leads:
            raise LeadershipLostError(f"{self.identity} could not renew its Lease in time.")

    async def win(self) -> None:
        """Wait until this replica leads."""
        if self._leases is None:
            return
        awaited = ""
        while not await self._attempt():
            holder = self._seen.record.holder if self._seen and self._seen.record else ""
            if holder != awaited:
                awaited = holder
                logger.info("%s is on standby; the leader is %s", self.identity, holder or "not elected yet")
            await asyncio.sleep(self._duration * LOOKS_AFTER)
        logger.info("%s is the leader", self.identity)

    async def keep(self) -> None:
        """Renew the Lease until cancelled. Raises LeadershipLostError if it could not be renewed in time."""
        if self._leases is None:
            await asyncio.Event().wait()
        while True:
            renewed = await self._attempt()
            self.ensure()
            await asyncio.sleep(self._duration * (RENEWS_AFTER if renewed else LOOKS_AFTER))

    async def release(self) -> None:
        """Clear the holder if this replica has the Lease. Another replica can then lead at once."""
        known = self._seen.record if self._seen is not None else None
        if self._leases is None or known is None or known.holder != self.identity:
            return
        self._renewed = None
        try:
            async with asyncio.timeout(self._duration * LOOKS_AFTER):
                await self._leases.write(
                    LeaseRecord("", known.duration_seconds, known.transitions, known.version), known
                )
        except (TimeoutError, KubernetesError) as error:
            logger.warning("The Lease was not released; the other replica waits until it expires: %r", error)

    async def _attempt(self) -> bool:
        """Read the Lease, and take or renew it. Whether this replica has it now; False if the API server fails."""
        assert self._leases is not None
        try:
            # A request that hangs must leave time for another attempt.
            async with asyncio.timeout(self._duration * LOOKS_AFTER):
                return await self._take_or_renew(self._leases)
        except (TimeoutError, KubernetesError) as error:
            logger.warning("The Lease cannot be read or renewed: %r", error)
            return False

    async def _take_or_renew(self, leases: Leases) -> bool:
        self._seen = observe(self._seen, await leases.read(), self._clock())
        known = self._seen.record
        step = next_step(self.identity, self._seen, self._clock())
        if step is LeaseStep.WAIT:
            self._renewed = None
            return False
        is_takeover = known is not None and known.holder != self.identity
        transitions = (known.transitions if known is not None else 0) + is_takeover
        # The time before the request counts: the API server may write at any moment after it.
        requested = self._clock()
        record = LeaseRecord(self.identity, self._duration, transitions, known.version if known is not None else "")
        written = await leases.write(record, known)
        if written is None:
            return False
        self._seen = LeaseObservation(written, self._clock())
        self._renewed = requested
        return True
