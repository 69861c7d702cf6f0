"""Under which names the console answers. A page of another host cannot make its name lead here (DNS rebinding)."""

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

_NAME: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?")

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def is_answered(host: str, names: Collection[str]) -> bool:
    """Whether requests with this Host header are answered: to an address, localhost, or one of the names.

    >>> is_answered("127.0.0.1:8765", ()), is_answered("[::1]", ()), is_answered("evil.example:8765", ())
    (True, True, False)
    """
    found = _NAME.fullmatch(host)
    if found is None:
        return False
    name = found["name"].lower().removesuffix(".")
    return name == "localhost" or name in {known.lower() for known in names} or is_address(name.strip("[]"))


def is_address(text: str) -> bool:
    """Whether it is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """Whether it can be the name of a host, without a port."""
    return _HOST_NAME.fullmatch(text) is not None


def is_loopback(text: str) -> bool:
    """Whether only this machine reaches this address or name."""
    return text == "localhost" or (is_address(text) and ip_address(text).is_loopback)
