"""A frontend's part in measuring a session that several frontends serve: it tells the rank, and hears the whole."""

from collections import Counter, deque

from partita_runtime.serving.central.coordinator_link import AWAY, RankFinder, RankLink
from partita_runtime.serving.central.messages import Measured, Part, RankMessage, TakePart
from partita_runtime.serving.telemetry.signals import MAX_LATENCIES, Meter
from partita_runtime.serving.transport.wire import WireError


class Partaking:
    """Tells the rank what this frontend counts; use it on the event loop that it is made on."""

    def __init__(self, finder: RankFinder, session_key: str, meter: Meter) -> None:
        self.measured: Measured | None = None
        """What was measured at all frontends, once that is known."""
        self._session_key = session_key
        self._meter = meter
        self._ended = meter.told = deque(maxlen=MAX_LATENCIES)
        self._arrived = meter.arrived
        self._cut_off = Counter(meter.cut_off)
        self._were_held = meter.held, meter.held_micros
        self._link = RankLink(finder, self)

    @property
    def counted(self) -> Meter:
        """How the requests at all frontends ended, since the rank began to count."""
        if self.measured is None:
            return self._meter
        held, held_micros = self.measured.were_held
        return Meter(
            outcomes=Counter(self.measured.outcomes),
            cut_off=Counter(self.measured.cut_off),
            held=held,
            held_micros=held_micros,
        )

    def tick(self, part: Part) -> None:
        """Say what this frontend is at, to which its counters are added; to be called four times a second."""
        self._link.tick()
        held, held_micros = self._were_held
        counted = {
            "arrived": self._meter.arrived - self._arrived,
            "ended": tuple(self._ended),
            "cut_off": self._meter.cut_off - self._cut_off,
            "were_held": (self._meter.held - held, self._meter.held_micros - held_micros),
        }
        if self._link.send(part.model_copy(update=counted)):
            self._arrived = self._meter.arrived
            self._cut_off = Counter(self._meter.cut_off)
            self._were_held = self._meter.held, self._meter.held_micros
            self._ended.clear()

    def close(self) -> None:
        """Take part no more."""
        self._meter.told = None
        self._link.close()

    def introduction(self, token: str) -> TakePart:
        """Of which session (`rank_link.RankListener`)."""
        return TakePart(token=token, session=self._session_key)

    def heard(self, message: RankMessage) -> None:
        """What is measured of the whole session."""
        if not isinstance(message, Measured):
            raise WireError(f"a {message.kind} message is not expected here")
        self.measured = message

    def away(self) -> None:
        """What was measured last is all that is known, until the rank is back."""
        if self.measured is not None:
            signals = self.measured.signals.model_copy(update={"message": AWAY})
            self.measured = self.measured.model_copy(update={"signals": signals})
