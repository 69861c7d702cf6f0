"""URLs of servers that sessions name, and the beginnings of URLs that a platform allows."""

from collections.abc import Iterable
from typing import Final

URL_PATTERN: Final = r"^https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~\-/]*)?$"
"""No user, query or fragment."""
BEGINNING_PATTERN: Final = r"^https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?/([A-Za-z0-9._~\-/]*/)?$"
"""The beginning of URLs, up to a slash."""


def begins_with_one_of(beginnings: Iterable[str], url: str) -> bool:
    """Whether a URL, with or without a slash at its end, is below one of these beginnings.

    >>> begins_with_one_of(["http://triton.models.svc:8000/"], "http://triton.models.svc:8000")
    True
    >>> begins_with_one_of(["http://triton.models.svc:8000/a/"], "http://triton.models.svc:8000/a/../b")
    False
    """
    return ".." not in url.split("/") and any(f"{url.rstrip('/')}/".startswith(entry) for entry in beginnings)


def server_of(url: str) -> str:
    """The beginning of all URLs of the same server.

    >>> server_of("http://triton.models.svc:8000/v2")
    'http://triton.models.svc:8000/'
    """
    return "/".join(url.split("/")[:3]) + "/"
