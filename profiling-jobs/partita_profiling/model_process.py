"""What the process of the model does: it captures, cuts and times it, and reports the result to the process above it.

Imports torch; the process above does not.
"""

import os
import sys
import traceback
from datetime import UTC, datetime

from partita_api.profile import Profile
from partita_profiling.job import run
from partita_profiling.result import ProfileFailure, result_line
from partita_profiling.supervision import ModelTask
from partita_runtime.models.errors import ModelError


def run_task(task: int, report: int) -> None:
    """Read a ModelTask from the descriptor `task`, run it, and write one result line to the descriptor `report`."""
    with os.fdopen(task) as tasks:
        result = _run(ModelTask.model_validate_json(tasks.read()))
    with os.fdopen(report, "w") as results:
        results.write(result_line(result) + "\n")


def _run(task: ModelTask) -> Profile | ProfileFailure:
    try:
        return run(task.request, lambda line: print(line, flush=True), now=datetime.now(UTC), seconds=task.seconds)
    except ModelError as error:
        return ProfileFailure.of(error.reason, error.message)
    except Exception as error:
        traceback.print_exc()
        return ProfileFailure.of("Unexpected", f"{type(error).__name__}: {error}; the run's log has the traceback")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
