"""Versions of what is installed here."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version


def installed_versions() -> Mapping[str, str]:
    """Version of torch here, which measurements depend on; nothing without torch."""
    try:
        return {"torch": version("torch")}
    except PackageNotFoundError:
        return {}
