"""Log lines: JSON with ids, and without secrets."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.runtime.serving.in_process.stand import stand
from tests.runtime.serving.plans import application

from partita_runtime.logs import (
    FORMAT_VARIABLE,
    JsonFormatter,
    LogFormat,
    TextFormatter,
    about,
    concerning,
    log_as_environment_says,
    log_to_stderr,
    without_secrets,
)

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The JSON lines of partita_runtime."""
    logger, written = logging.getLogger("partita_runtime"), io.StringIO()
    before = logger.handlers, logger.propagate, logger.level
    log_to_stderr(logger, LogFormat.JSON, "info", session="default/plain")
    (handler,) = logger.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    logger.handlers, logger.propagate, logger.level = before[0], before[1], before[2]


def test_a_line_is_one_object(lines: Lines) -> None:
    logging.getLogger("partita_runtime.x").warning("%d left\nof %s", 3, "äöü", extra=concerning(batch=7, module="crop"))
    (line,) = lines()
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "partita_runtime.x",
        "message": "3 left\nof äöü",
        "session": "default/plain",
        "batch": 7,
        "module": "crop",
    }


FORGED = "none\r\n2026-01-01T00:00:00 ERROR partita_runtime: forged\x1b[2K\x85\u2028\u2029\x0b\x0c\x1d\x00 end"
"""A client's text that tries to write a line of its own, and to erase one in a terminal."""


def failing_with(text: str) -> logging.LogRecord:
    """A record of an exception of a model."""
    try:
        raise RuntimeError(text)
    except RuntimeError:
        logger, info = logging.getLogger("partita_runtime.x"), sys.exc_info()
        return logger.makeRecord(logger.name, logging.ERROR, "", 0, "no %s", (text,), info)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_text_of_clients_and_models_does_not_make_lines(formatter: logging.Formatter) -> None:
    line = formatter.format(failing_with(FORGED))
    assert line.splitlines() == [line]
    assert line.isprintable()
    assert line.count("forged") == 2, "nothing is left out"


def test_text_of_clients_and_models_does_not_make_lines_of_rays_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORMAT_VARIABLE, raising=False)
    before = logging.getLogRecordFactory()
    try:
        log_as_environment_says()
        line = logging.Formatter("%(levelname)s %(message)s").format(failing_with(FORGED))
        others = logging.getLogger("others").makeRecord("others", logging.INFO, "", 0, "a\n%s", ("b",), None)
    finally:
        logging.setLogRecordFactory(before)
    message, traceback = line.split("\n")  # a formatter of others puts the traceback below the message
    assert [message.isprintable(), traceback.isprintable()] == [True, True]
    assert traceback.startswith("Traceback ")
    assert others.getMessage() == "a\nb"


def test_exceptions_stay_in_their_line(lines: Lines) -> None:
    try:
        raise RuntimeError("no such camera; token=abc123")
    except RuntimeError:
        logging.getLogger("partita_runtime").exception("failed")
    (line,) = lines()
    assert line["exception"].splitlines()[-1] == "RuntimeError: no such camera; token=***"


async def test_tasks_have_the_ids_of_their_start() -> None:
    formatter = JsonFormatter(plan="p")
    written = []

    async def write() -> None:
        await asyncio.sleep(0)
        record = logging.LogRecord("x", logging.INFO, "", 0, "hello", None, None)
        written.append(json.loads(formatter.format(record)))

    async with asyncio.TaskGroup() as group:
        for key in ("a/b", "c/d"):
            with about(session=key):
                group.create_task(write())
        group.create_task(write())
    assert [line.get("session") for line in written] == ["a/b", "c/d", None]
    assert {line["plan"] for line in written} == {"p"}


async def test_a_session_logs_which_plan_serves(lines: Lines) -> None:
    async with stand(application("plain").model("only").planned("plan-7")):
        pass
    served = [line for line in lines() if line["message"].endswith("serves")]
    assert [(line["session"], line["plan"]) for line in served] == [("default/plain", "plan-7")]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Authorization: Bearer eyJhbGciOi.J9-x_y=", "Authorization: Bearer ***"),
        ("GET http://me:hunter2@ray:8265/api", "GET http://***@ray:8265/api"),
        ('{"token": "abc", "n": 1}', '{"token": "***", "n": 1}'),
        ("PARTITA_RAY_TOKEN=abc and more", "PARTITA_RAY_TOKEN=*** and more"),
        ("api-key: abc; password='x y'", "api-key: ***; password='*** y'"),
        ("session default/traffic: 3 tokens left at http://ray:8265/", None),
    ],
)
def test_secrets_are_masked(text: str, want: str | None) -> None:
    assert without_secrets(text) == (want or text)


@pytest.mark.parametrize(
    ("value", "want"), [("json", '"replica": "r1"'), ("text", "WARNING partita_runtime: hello"), ("xml", "ValueError")]
)
def test_replicas_log_in_the_format_of_their_environment(value: str, want: str) -> None:
    program = (
        "import logging; from partita_runtime.logs import log_as_environment_says as f; "
        "f(replica='r1'); logging.getLogger('partita_runtime').warning('hello')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, FORMAT_VARIABLE: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert want in done.stderr
