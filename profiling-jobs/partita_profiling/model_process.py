"""The process that runs the model: it captures, cuts and times it, and reports the result to the process above it.

`python -m partita_profiling.model_process DESCRIPTOR` reads its task from standard input, and writes one result line
to the descriptor. Imports torch; the process above does not.
"""

import os
import sys
import traceback
from datetime import UTC, datetime

from partita_api.profile import Profile
from partita_profiling.isolation import end_with_parent
from partita_profiling.job import run
from partita_profiling.result import ProfileFailure, result_line
from partita_profiling.supervision import ModelTask
from partita_runtime.models.errors import ModelError


def main() -> None:
    """Run the task, and report how it ended."""
    end_with_parent()
    result = _run(ModelTask.model_validate_json(sys.stdin.read()))
    with os.fdopen(int(sys.argv[1]), "w") as report:
        report.write(result_line(result) + "\n")


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


if __name__ == "__main__":
    main()
