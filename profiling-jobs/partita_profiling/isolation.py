"""Keeps a process apart from its child processes, which run models' code under the same user.

A process of the same user could otherwise open the descriptors of this one in /proc, write to its memory, or trace it.
Linux only.
"""

import ctypes
import os
import signal
import sys
from typing import Final

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_DUMPABLE: Final = 4


def isolate() -> None:
    """Close this process to all processes without CAP_SYS_PTRACE; call it before a child runs code of models.

    From now on nothing more is imported from files: children may be able to write to directories of the search path,
    such as the working directory. So import everything before.
    """
    _prctl(_SET_DUMPABLE, 0)
    sys.path.clear()
    sys.path_importer_cache.clear()


def end_with_parent() -> None:
    """Let the kernel kill this process when the process that started it ends."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
