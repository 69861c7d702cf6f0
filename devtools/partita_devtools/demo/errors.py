"""The error of a demonstration."""

from partita_devtools.errors import DevError


class DemoError(DevError):
    """The demonstration cannot continue; the message says what is wrong and what to do."""
