"""The one error of the development environment."""


class DevError(Exception):
    """Something in the development environment cannot be had or did not start.

    The message is for the person at the terminal: what failed, where the log is, what to do next.
    """
