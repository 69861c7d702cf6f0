"""Log lines as text or as one JSON object per line, with the ids of what they are about, and without secrets."""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

IDS: Final = ("session", "plan", "module", "pipeline", "stage", "pool", "replica", "batch")
"""The names of ids, set with `about` or `concerning`."""

FORMAT_VARIABLE: Final = "PARTITA_LOG_FORMAT"
"""Environment variable of frontends and stage replicas; if it is unset, Ray decides where their lines go."""

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SECRETS: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w\-.~+/]+=*"), r"\1 ***"),
    (
        re.compile(r"(?i)(?<![a-z0-9])(token|password|secret|api[-_]?key)([\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"),
        r"\1\2***",
    ),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), "://***@"),
)
_about: ContextVar[Mapping[str, object] | None] = ContextVar("about", default=None)


class LogFormat(StrEnum):
    """The format of lines."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def about(**ids: object) -> Iterator[None]:
    """Lines written in this block, and in tasks that it starts, have these ids (names in IDS)."""
    token = _about.set({**(_about.get() or {}), **ids})
    try:
        yield
    finally:
        _about.reset(token)


def concerning(**ids: object) -> dict[str, object]:
    """The ids of one line (names in IDS), for the `extra` of a logger's call."""
    return {"about": ids}


class TextFormatter(logging.Formatter):
    """A line of text, without secrets."""

    def __init__(self) -> None:
        super().__init__(_TEXT, "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by a traceback if there is one."""
        return without_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, ids, and the traceback as `exception`."""

    def __init__(self, **ids: object) -> None:
        """`ids` are added to every line of this process."""
        super().__init__()
        self._ids = ids

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **self._ids,
            **(_about.get() or {}),
            **getattr(record, "about", {}),
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


def log_to_stderr(logger: logging.Logger, form: LogFormat, level: str, **ids: object) -> None:
    """Write the lines of `logger` and the loggers below it to stderr only, in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(**ids) if form is LogFormat.JSON else TextFormatter())
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def log_as_environment_says(**ids: object) -> None:
    """In a frontend or stage replica: write lines in the format of PARTITA_LOG_FORMAT, with `ids`.

    Raises ValueError for an unknown format.
    """
    form = os.environ.get(FORMAT_VARIABLE)
    if form is not None:
        log_to_stderr(logging.getLogger("partita_runtime"), LogFormat(form), "info", **ids)


def without_secrets(text: str) -> str:
    """The text with tokens and passwords replaced by ***."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
