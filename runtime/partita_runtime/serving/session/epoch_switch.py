"""Moves a session from epoch to epoch: which executor takes requests, which epoch is pending, which requests finish."""

import logging
from collections.abc import Callable, Sequence

from partita_runtime.logs import concerning
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.dispatch.dispatcher import Dispatcher
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.pending_epoch import PendingEpoch
from partita_runtime.serving.transport.clock import now_micros

logger = logging.getLogger(__name__)


class EpochSwitch:
    """At most one executor takes new requests; the executors before it finish their requests."""

    def __init__(
        self, session_key: str, patience_seconds: float, make_executor: Callable[[Epoch], EpochExecutor]
    ) -> None:
        """`patience_seconds`: how long a pending epoch waits for the rest of its replicas while another one serves."""
        self.current: EpochExecutor | None = None
        """The executor that takes new requests; None until the first plan's replicas are there."""
        self.pending: PendingEpoch | None = None
        """The epoch to move to once its replicas and functions are ready."""
        self.awaits_check = False
        """Whether the pending epoch must not serve before its answers are checked."""
        self._finishing: list[EpochExecutor] = []
        self._session_key = session_key
        self._patience_seconds = patience_seconds
        self._make_executor = make_executor

    @property
    def in_use(self) -> list[EpochExecutor]:
        """The executors that have requests or take them, the oldest first."""
        return [*self._finishing, self.current] if self.current is not None else [*self._finishing]

    @property
    def oldest(self) -> EpochExecutor | None:
        """The executor of the plan to report: the old plan for as long as requests finish on it."""
        return self._finishing[0] if self._finishing else self.current

    @property
    def waits_for(self) -> str:
        """What the pending epoch waits for, in one or two sentences; empty without one."""
        if self.pending is None:
            return ""
        if self.awaits_check and self.pending.prepared:
            return f"Plan {self.pending.executor.epoch.plan.name} waits until its answers to samples are checked."
        return self.pending.message

    def executor_of(self, plan: str) -> EpochExecutor | None:
        """What executes samples on this plan: the pending or the current epoch, if it has the plan and can."""
        if self.pending is not None and self.pending.executor.epoch.plan.name == plan:
            return self.pending.executor if self.pending.prepared else None
        if self.current is None or self.current.epoch.plan.name != plan or not is_complete(self.current.dispatcher):
            return None
        return self.current

    def move_to(self, epoch: Epoch) -> None:
        """Make an epoch the pending one, unless it is the pending or the current one already."""
        if self.pending is not None:
            if self.pending.executor.epoch == epoch:
                return
            self.pending.close()
            self.pending = None
        if self.current is None or self.current.epoch != epoch:
            ids = {"session": self._session_key, "plan": epoch.plan.name}
            logger.info("session %s: plan %s is pending", *ids.values(), extra=concerning(**ids))
            self.pending = PendingEpoch(self._make_executor(epoch))

    def connect_pending(self, replicas: Sequence[Announcement]) -> None:
        """Connect the pending epoch to its replicas."""
        if self.pending is not None:
            self.pending.executor.dispatcher.connect(replicas)

    def tick(self, replicas: Sequence[Announcement]) -> None:
        """To be called a few times a second with the session's replicas."""
        pending = [self.pending.executor] if self.pending else []
        for executor in (*self.in_use, *pending):
            executor.dispatcher.connect(replicas)
            executor.tick()
        self.try_switch()
        for executor in [executor for executor in self._finishing if executor.idle]:
            self._finishing.remove(executor)
            executor.close()
        self._share_batches()

    def try_switch(self) -> None:
        """Move to the pending epoch if it is ready."""
        pending = self.pending
        if pending is None or self.awaits_check or not pending.may_serve(self._patience(pending.executor)):
            return
        pending.executor.plan_since = now_micros()
        if self.current is not None:
            if self.current.epoch.plan.name == pending.executor.epoch.plan.name:
                pending.executor.plan_since = self.current.plan_since
            self._finishing.append(self.current)
        self.current, self.pending = pending.executor, None
        ids = {"session": self._session_key, "plan": pending.executor.epoch.plan.name}
        logger.info("session %s: plan %s serves", *ids.values(), extra=concerning(**ids))
        self._share_batches()

    def close(self) -> None:
        """Disconnect from all replicas and end all processes."""
        if self.pending is not None:
            self.pending.close()
        for executor in self.in_use:
            executor.close()

    def _patience(self, pending: EpochExecutor) -> float | None:
        """How many seconds the pending epoch waits for the rest of its replicas; None if it serves without any.

        If requests are held now and the pending epoch holds requests, too, they can as well wait for that epoch.
        """
        current = self.current.dispatcher if self.current else None
        if is_complete(current):
            return self._patience_seconds
        can_serve = current is not None and current.can_serve
        return None if pending.hold_micros is not None and not can_serve else 0.0

    def _share_batches(self) -> None:
        """The batches of one executor occupy replicas for the others, of the same plan or the same sub-cluster."""
        executors = self.in_use
        for executor in executors:
            executor.dispatcher.share_with(e.dispatcher for e in executors if e is not executor)


def is_complete(dispatcher: Dispatcher | None) -> bool:
    """Whether every stage of the plan has a replica, and the scheduler is there."""
    return dispatcher is not None and dispatcher.scheduled and all(dispatcher.ready_replicas().values())
