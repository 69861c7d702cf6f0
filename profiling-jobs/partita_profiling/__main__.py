"""`python -m partita_profiling`: profile one model on the machine at hand."""

import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click
from pydantic import ValidationError

from partita_api.profile import ProfileRequest
from partita_profiling.job import DEFAULT_SECONDS, run
from partita_profiling.result import REQUEST_VARIABLE, ProfileFailure, result_line
from partita_runtime.models.errors import ModelError

BAD_REQUEST_STATUS = 2


@click.command(name="python -m partita_profiling")
@click.option(
    "--request",
    "source",
    metavar="FILE",
    help=f"File with the ProfileRequest as JSON, or - for standard input. Default: environment {REQUEST_VARIABLE}.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_SECONDS,
    show_default=True,
    help="About how long the timing of each vGPU divisor may take. It takes longer if 3 runs of every block at every "
    "batch size take longer. Loading, cutting and compiling are not included.",
)
def main(source: str | None, seconds: float) -> None:
    """Profile a model: cut it into blocks, time them, and print the Profile as the last line.

    That line is PARTITA-PROFILE <json>, or PARTITA-PROFILE-ERROR <json> with exit status 1, or with exit status 2 for
    an invalid request. All lines before it are progress.
    """
    try:
        request = ProfileRequest.model_validate_json(_request_text(source))
    except (ValidationError, OSError, ValueError) as error:
        _fail("BadRequest", f"the request cannot be read: {error}", BAD_REQUEST_STATUS)
    try:
        profile = run(request, lambda line: print(line, flush=True), now=datetime.now(UTC), seconds=seconds)
    except ModelError as error:
        _fail(error.reason, error.message, 1)
    except Exception as error:
        traceback.print_exc()
        _fail("Unexpected", f"{type(error).__name__}: {error}; the run's log has the traceback", 1)
    print(result_line(profile), flush=True)


def _request_text(source: str | None) -> str:
    if source == "-":
        return sys.stdin.read()
    if source is not None:
        return Path(source).read_text()
    if REQUEST_VARIABLE not in os.environ:
        raise ValueError(f"set {REQUEST_VARIABLE}, or give --request FILE")
    return os.environ[REQUEST_VARIABLE]


def _fail(reason: str, message: str, status: int) -> NoReturn:
    sys.stderr.flush()
    print(result_line(ProfileFailure(reason=reason, message=message)), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
