"""The `partita` command, also as `python -m partita_operator`.

It prepares for Ctrl-C before it imports click and the command, so it imports almost nothing by itself.
"""

import os
import signal
from types import FrameType

from partita_operator.cli.exit_codes import ExitCode


def main(name: str | None = None) -> None:
    """Run the command under this name, by default that of the script.

    Ctrl-C during the imports ends it like a command that runs: with one line, and the exit code INTERRUPTED.
    """
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is signal.default_int_handler:  # not if the shell has started it to ignore Ctrl-C
        signal.signal(signal.SIGINT, _end)
    from partita_operator.cli.main import main as command

    signal.signal(signal.SIGINT, on_interrupt)
    command(prog_name=name)


def _end(_signal: int, _frame: FrameType | None) -> None:
    """End at once. An exception would pass through the import of a package, which may catch it."""
    os.write(2, b"Interrupted.\n")
    os._exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main("partita")
