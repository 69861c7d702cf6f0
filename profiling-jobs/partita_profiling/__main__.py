"""`python -m partita_profiling`: profile one model on the machine at hand."""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click
from pydantic import ValidationError

from partita_api.profile import Profile, ProfileRequest
from partita_profiling.isolation import isolate
from partita_profiling.result import REQUEST_VARIABLE, ProfileFailure, result_line
from partita_profiling.supervision import ModelTask, run_model, start_model_process

DEFAULT_SECONDS = 20.0
BAD_REQUEST_STATUS = 2
TERMINATED_STATUS = 128 + signal.SIGTERM


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
    an invalid request. All lines before it are what the model's process prints.
    """
    try:
        request = ProfileRequest.model_validate_json(_request_text(source))
    except (ValidationError, OSError, ValueError) as error:
        _fail(ProfileFailure.of("BadRequest", f"the request cannot be read: {error}"), BAD_REQUEST_STATUS)
    process = start_model_process()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED_STATUS))  # it ends the model's process, too
    isolate()
    result = run_model(process, ModelTask(request=request, seconds=seconds), lambda line: print(line, flush=True))
    if not isinstance(result, Profile):
        _fail(result, 1)
    print(result_line(result), flush=True)


def _request_text(source: str | None) -> str:
    if source == "-":
        return sys.stdin.read()
    if source is not None:
        return Path(source).read_text()
    if REQUEST_VARIABLE not in os.environ:
        raise ValueError(f"set {REQUEST_VARIABLE}, or give --request FILE")
    return os.environ[REQUEST_VARIABLE]


def _fail(failure: ProfileFailure, status: int) -> NoReturn:
    print(result_line(failure), flush=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
