"""Versions of the libraries that measurements depend on."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version


def installed_versions() -> Mapping[str, str]:
    """The installed version of torch; empty without torch."""
    try:
        return {"torch": version("torch")}
    except PackageNotFoundError:
        return {}
