"""The one error of a demonstration."""


class DemoError(Exception):
    """The demonstration cannot go on; the message says what is wrong and what to do about it."""
