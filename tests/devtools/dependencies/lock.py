"""The lock of dependencies as tests read it."""

from functools import cache
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[3]


@cache
def locked() -> dict[str, tuple[str, ...]]:
    """The lines of the lock for this machine, by package."""
    found: dict[str, tuple[str, ...]] = {}
    text = (ROOT / "constraints.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            pin = pinned(line)
            if pin.marker is None or pin.marker.evaluate():
                name = canonicalize_name(pin.name)
                found[name] = (*found.get(name, ()), line)
    return found


def pinned(line: str) -> Requirement:
    return Requirement(line.partition(" --hash")[0])
