"""The error of the development tools."""


class DevError(Exception):
    """A part of the development environment is not available or did not start.

    The message says what failed, where the log is, and what to do next.
    """
