"""What Ctrl-C does to a command that starts a development environment."""

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from partita_operator.cli.output import report


@contextmanager
def stopped_if_interrupted() -> Iterator[ExitStack]:
    """Run the block with a stack for what stops the parts that it starts; if Ctrl-C ends the block, they are stopped.

    That takes some seconds, in which another Ctrl-C does nothing. Parts that ran before, or that another command is
    starting at the same time, keep running.
    """
    undo = ExitStack()
    try:
        yield undo
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        report("stopping what this command has started")
        try:
            undo.close()
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        report(f"to start again: {shlex.join(['partita', *sys.argv[1:]])}")
        raise
