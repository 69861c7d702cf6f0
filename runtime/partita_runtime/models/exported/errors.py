"""The error of content that is not on the lists of this folder."""


class ForbiddenContentError(ValueError):
    """A .pt2 file contains what Partita does not read. The message says what it is."""
