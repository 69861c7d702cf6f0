"""Log lines as text or as one JSON object per line, with the ids of what they are about, and without secrets.

A record is one line, whatever text of clients or models is in it.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

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
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line or control a terminal; a tab does not."""
_RUNTIME: Final = "partita_runtime"
"""The logger above all of the runtime."""
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
    """A line of text, without secrets. Control characters are escaped, also the ends of a traceback's lines."""

    def __init__(self) -> None:
        super().__init__(_TEXT, "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line, with a traceback if there is one."""
        return one_line(without_secrets(super().format(record)))


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
        return _CONTROL.sub(_in_json, json.dumps(line, default=str, ensure_ascii=False))


def log_to_stderr(logger: logging.Logger, form: LogFormat, level: str, **ids: object) -> None:
    """Write the lines of `logger` and the loggers below it to stderr only, in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(**ids) if form is LogFormat.JSON else TextFormatter())
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())


def log_as_environment_says(**ids: object) -> None:
    """In a frontend or stage replica: write lines in the format of PARTITA_LOG_FORMAT, with `ids`.

    Without it Ray writes the lines, in a format of its own. Raises ValueError for an unknown format.
    """
    form = os.environ.get(FORMAT_VARIABLE)
    if form is not None:
        log_to_stderr(logging.getLogger(_RUNTIME), LogFormat(form), "info", **ids)
    else:
        logging.setLogRecordFactory(_EscapedRecord)


class _EscapedRecord(logging.LogRecord):
    """A record for handlers of others: the runtime's messages and tracebacks are one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.name.partition(".")[0] == _RUNTIME:
            self.msg, self.args = one_line(self.getMessage()), None
            if self.exc_info:
                self.exc_text = one_line(logging.Formatter().formatException(self.exc_info))


def one_line(text: str) -> str:
    """The text with control characters written as escapes, such as \\n."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _in_json(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def without_secrets(text: str) -> str:
    """The text with tokens and passwords replaced by ***."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text
