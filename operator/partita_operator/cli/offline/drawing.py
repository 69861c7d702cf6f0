"""Loads modules that draw figures, only if figures are asked for: matplotlib is an extra, and slow to load."""

from importlib import import_module
from types import ModuleType

from partita_operator.cli.errors import BadInput


def load_plots(module: str) -> ModuleType:
    """A module that imports matplotlib. Raises BadInput with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise BadInput(str(error)) from error
