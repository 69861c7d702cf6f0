"""Holds the Lease, or waits for it."""

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
    LeaseRecord,
    Observation,
    Step,
    next_step,
    observe,
    still_holds,
)

logger = logging.getLogger(__name__)


class LeadershipLostError(Exception):
    """Another replica may be at work by now, so that this one must not act; it ends, and is started anew."""


class Leases(Protocol):
    """Where the Lease is kept."""

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is now."""

    async def write(self, record: LeaseRecord, over: LeaseRecord | None) -> LeaseRecord | None:
        """Make the Lease so, if it is still `over`; None if somebody else was first."""


class Leadership:
    """One replica's part in the election. Without `leases` there is only one replica, which always leads."""

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
        self._seen: Observation | None = None
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
        waits_for = ""
        while not await self._try():
            holder = self._seen.record.holder if self._seen and self._seen.record else ""
            if holder != waits_for:
                waits_for = holder
                logger.info("%s stands by while %s leads", self.identity, holder or "nobody")
            await asyncio.sleep(self._duration * LOOKS_AFTER)
        logger.info("%s leads", self.identity)

    async def keep(self) -> None:
        """Renew the Lease for ever. Raises LeadershipLostError once it could not be renewed in time."""
        if self._leases is None:
            await asyncio.Event().wait()
        while True:
            renewed = await self._try()
            self.ensure()
            await asyncio.sleep(self._duration * (RENEWS_AFTER if renewed else LOOKS_AFTER))

    async def release(self) -> None:
        """Give the Lease back, if this replica has it, so that another one can lead at once."""
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
            logger.warning("the Lease was not given back, so that it has to run out: %r", error)

    async def _try(self) -> bool:
        """Look at the Lease and take or renew it; whether this replica has it now. An API server that fails is waited
        for."""
        assert self._leases is not None
        try:
            # An attempt that hangs must not use up the time in which another one could succeed.
            async with asyncio.timeout(self._duration * LOOKS_AFTER):
                return await self._look_and_take(self._leases)
        except (TimeoutError, KubernetesError) as error:
            logger.warning("the Lease cannot be read or renewed: %r", error)
            return False

    async def _look_and_take(self, leases: Leases) -> bool:
        self._seen = observe(self._seen, await leases.read(), self._clock())
        known = self._seen.record
        step = next_step(self.identity, self._seen, self._clock())
        if step is Step.WAIT:
            self._renewed = None
            return False
        changes_hands = known is not None and known.holder != self.identity
        transitions = (known.transitions if known is not None else 0) + changes_hands
        # The time before the request counts: the API server may have written at any moment since.
        asked = self._clock()
        record = LeaseRecord(self.identity, self._duration, transitions, known.version if known is not None else "")
        written = await leases.write(record, known)
        if written is None:
            return False
        self._seen = Observation(written, self._clock())
        self._renewed = asked
        return True
