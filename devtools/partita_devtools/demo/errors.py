"""The error of a demonstration."""


class DemoError(Exception):
    """The demonstration cannot continue; the message says what is wrong and what to do."""
