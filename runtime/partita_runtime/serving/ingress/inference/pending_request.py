"""A request of any protocol from its arrival to its answer: counted, held while there are no replicas, executed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from partita_runtime.execution.executor import Array
from partita_runtime.serving.ingress.request_accounting import RequestAccounting
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.epoch_executor import (
    ClientLeftError,
    EpochExecutor,
    RequestExecution,
    TakeOutputs,
)
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason
from partita_runtime.serving.session.waiting_room import Place
from partita_runtime.serving.transport.clock import now_micros


class PendingRequest(ABC):
    """A pending request: the `ResponseHandler` of its executor, and a `Waiter` while it is held.

    Each protocol has its own `encoded`, `give` and `refuse`. A request that is answered in parts has its own `early`.
    """

    __slots__ = ("_accounting", "_execution", "_executor", "_place", "_requested", "_session")

    def __init__(
        self,
        session: Session,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
        headers: Mapping[str, str],
    ) -> None:
        """`executor` serves now; the request arrived at `arrived` (microseconds). Raises why it is refused."""
        self._session, self._requested, self._executor = session, requested, executor
        self._execution: RequestExecution | None = None
        self._place: Place | None = None
        self._accounting = RequestAccounting(session, executor, requested.samples, arrived, headers)
        try:
            if session.holds:
                self._place = session.hold(self, requested, arrived)
            else:
                self._begin(arrived)
        except Exception as error:
            self._accounting.end(error)
            raise

    def cancel(self) -> None:
        """The client has left."""
        if self._execution is not None:
            self._executor.cancel(self._execution)
        self._ended(ClientLeftError())

    def early(self) -> TakeOutputs | None:
        """What receives outputs before the others are known; None for an answer with all outputs."""
        return None

    @property
    def answered_in_part(self) -> bool:
        """Whether the client has received outputs already."""
        return False

    def give_up(self, error: Exception) -> None:
        """End the request in progress with an error."""
        if self._execution is not None:
            self._executor.cancel(self._execution)
        self._fail(error)

    @abstractmethod
    def encoded(self, requested: InferRequest, executor: EpochExecutor, tensors: dict[str, Array]) -> Any:
        """The answer in the protocol's form. Raises if it cannot be encoded."""

    @abstractmethod
    def give(self, answer: Any) -> None:
        """Send the client its answer."""

    @abstractmethod
    def refuse(self, error: Exception) -> None:
        """Send the client an error."""

    # Called by the executor (epoch_executor.ResponseHandler).

    def answered(self, tensors: dict[str, Array]) -> None:
        """Called by the executor."""
        try:
            answer = self.encoded(self._requested, self._executor, tensors)
        except Exception as error:
            self._fail(error)
        else:
            self._ended()
            self.give(answer)

    def failed(self, error: Exception) -> None:
        """Called by the executor."""
        if self._is_held_again(error):
            self._execution = None
        else:
            self._fail(error)

    # Called by the waiting room (waiting_room.Waiter).

    def let_in(self, now: int) -> None:
        """The request's SLO begins now."""
        before, executor = self._executor.epoch.session, self._session.serving
        try:
            if executor is None or (executor.epoch.session.modules, executor.epoch.session.edges) != (
                before.modules,
                before.edges,
            ):
                raise UnservedError(
                    UnservedReason.UNAVAILABLE, "the session changed while the request was held; try again"
                )
            self._executor = executor
            self._accounting.begin(executor, now)
            self._begin(now)
        except Exception as error:
            self._fail(error)

    def turned_away(self, error: UnservedError) -> None:
        """Called by the waiting room."""
        self._fail(error)

    def _is_held_again(self, error: Exception) -> bool:
        """Whether the request is held again: its replicas are gone, or too few for the admitted requests."""
        if not isinstance(error, UnservedError) or self.answered_in_part:
            return False
        gone, now = error.reason is UnservedReason.NO_REPLICAS, now_micros()
        if self._place is not None:
            crowded = (
                error.reason in (UnservedReason.OVERLOAD, UnservedReason.TOO_LATE)
                and self._requested.timeout_micros is None
            )
            return (gone or crowded) and self._session.waiting.again(self._place, now)
        if not gone or not self._session.may_hold:
            return False
        try:
            self._place = self._session.hold(self, self._requested, now)
        except UnservedError:
            return False
        return True

    def _begin(self, since: int) -> None:
        self._execution = self._executor.begin(self._requested, since, self, self._accounting.trace, self.early())

    def _fail(self, error: Exception) -> None:
        self._ended(error)
        self.refuse(error)

    def _ended(self, error: Exception | None = None) -> None:
        if self._place is not None:
            self._session.waiting.leave(self._place, now_micros())
        self._accounting.end(error)
