"""What a session's functions can use."""


class RequestRefusedError(Exception):
    """A function refuses the request because of what the client has sent.

    The client receives the message, with status 400. It says what is wrong, and what is expected.
    """
