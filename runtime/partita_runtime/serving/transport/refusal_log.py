"""One line of the log for many refusals, which strangers can cause as often as they like."""

import logging
import math
import time
from typing import Final

LOG_AGAIN_SECONDS: Final = 10.0
"""After a line, refusals are not logged for this long."""


class RefusalLog:
    """Logs what one part of a process refuses."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged = -math.inf

    def note(self, text: str, *arguments: object) -> None:
        """Log a refusal, unless another one was logged a moment ago. No argument may be text of a stranger."""
        now = time.monotonic()
        if now - self._logged > LOG_AGAIN_SECONDS:
            self._logged = now
            self._logger.warning(text, *arguments)
