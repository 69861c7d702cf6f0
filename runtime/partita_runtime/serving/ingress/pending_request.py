"""A request that was taken in, whichever protocol carries it: counted, held until there are replicas, then served."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from partita_runtime.execution.executor import Array
from partita_runtime.serving.dispatch.scheduler import now_micros
from partita_runtime.serving.ingress.request_accounting import Counted
from partita_runtime.serving.protocol.inference import InferRequest, UnservedError
from partita_runtime.serving.session.epoch_executor import Call, ClientLeftError, Driver
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.waiting_room import Place
from partita_runtime.serving.telemetry.signals import Outcome


class Accepted(ABC):
    """On its way to its answer: an `Asker` of its driver, and a `Waiter` where it is held.

    What protocols differ in is `encoded`, `give` and `refuse`.
    """

    __slots__ = ("_call", "_counted", "_driver", "_place", "_session", "_wanted")

    def __init__(
        self, session: Session, wanted: InferRequest, driver: Driver, arrived: int, headers: Mapping[str, str]
    ) -> None:
        """`driver` serves now; the request arrived at `arrived` (microseconds). Raises why it is refused."""
        self._session, self._wanted, self._driver = session, wanted, driver
        self._call: Call | None = None
        self._place: Place | None = None
        self._counted = Counted(session, driver, wanted.samples, arrived, headers)
        try:
            if session.holds:
                self._place = session.hold(self, wanted, arrived)
            else:
                self._call = driver.begin(wanted, arrived, self, self._counted.trace)
        except Exception as error:
            self._counted.end(error)
            raise

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        if self._call is not None:
            self._driver.cancel(self._call)
        self._ended(ClientLeftError())

    @abstractmethod
    def encoded(self, wanted: InferRequest, driver: Driver, tensors: dict[str, Array]) -> Any:
        """The answer as the protocol has it. Raises if it cannot be said."""

    @abstractmethod
    def give(self, answer: Any) -> None:
        """The client gets its answer."""

    @abstractmethod
    def refuse(self, error: Exception) -> None:
        """The client gets none, for this reason."""

    # What the driver says (driver.Asker).

    def answered(self, tensors: dict[str, Array]) -> None:
        """Called by the driver."""
        try:
            answer = self.encoded(self._wanted, self._driver, tensors)
        except Exception as error:
            self._fail(error)
        else:
            self._ended()
            self.give(answer)

    def failed(self, error: Exception) -> None:
        """Called by the driver."""
        if self._waits_again(error):
            self._call = None
        else:
            self._fail(error)

    # What the waiting room says (waiting_room.Waiter).

    def let_in(self, now: int) -> None:
        """Its deadline is counted from now."""
        before, driver = self._driver.epoch.session, self._session.serving
        try:
            if driver is None or (driver.epoch.session.modules, driver.epoch.session.edges) != (
                before.modules,
                before.edges,
            ):
                raise UnservedError(Outcome.FAILED, 503, "the session changed while the request was held; try again")
            self._driver = driver
            self._counted.begin(driver, now)
            self._call = driver.begin(self._wanted, now, self, self._counted.trace)
        except Exception as error:
            self._fail(error)

    def turned_away(self, error: UnservedError) -> None:
        """Called by the waiting room."""
        self._fail(error)

    def _waits_again(self, error: Exception) -> bool:
        """Whether it is held, once more: its replicas have gone, or are fewer than what was let in needs."""
        if not isinstance(error, UnservedError):
            return False
        gone, now = error.outcome is Outcome.NO_WORKERS, now_micros()
        if self._place is not None:
            crowded = error.outcome in (Outcome.OVERLOAD, Outcome.TOO_LATE) and self._wanted.timeout_micros is None
            return (gone or crowded) and self._session.waiting.again(self._place, now)
        if not gone or not self._session.may_hold:
            return False
        try:
            self._place = self._session.hold(self, self._wanted, now)
        except UnservedError:
            return False
        return True

    def _fail(self, error: Exception) -> None:
        self._ended(error)
        self.refuse(error)

    def _ended(self, error: Exception | None = None) -> None:
        if self._place is not None:
            self._session.waiting.leave(self._place, now_micros())
        self._counted.end(error)
