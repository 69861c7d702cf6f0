"""What the logs of Ray's own processes say of their end."""

import re
from pathlib import Path

_FATAL = re.compile(r"^\[[^]]* C [^]]*\] \(\w+\) (?P<error>.*)$", re.MULTILINE)


def fatal_errors(logs: Path) -> list[str]:
    """The errors with which raylets and the control service ended themselves, one a line, as `<log>: <error>`.

    `logs` is the directory of a Ray session's logs. `ray start` says of such an end only that the node did not join.
    """
    return [
        f"{log}: {match['error']}"
        for log in sorted([*logs.glob("raylet*.out"), *logs.glob("gcs_server*.out")])
        for match in _FATAL.finditer(log.read_text(errors="replace"))
    ]
