"""The command that installs a missing part of Partita, in the way in which this installation was made."""

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

PACKAGE: Final = "partita"
DEVTOOLS: Final = "partita-devtools"


def extra_command(extra: str) -> str:
    """A shell command that installs one extra of Partita, such as `operator`, for this Python."""
    source = _source()
    checkout = _checkout(source)
    if checkout is not None:
        return _pip("-e", f"{checkout}[{extra}]")
    requirement = f"{PACKAGE}[{extra}]"
    return _pip(f"{requirement} @ {source['url']}" if source.get("url") else requirement)


def package_command() -> str:
    """A shell command that installs Partita again without extras, and what it requires, for this Python."""
    source = _source()
    checkout = _checkout(source)
    if checkout is not None:
        return _pip("-e", str(checkout))
    return _pip("--upgrade", f"{PACKAGE} @ {source['url']}" if source.get("url") else PACKAGE)


def devtools_command() -> str:
    """A shell command that installs the development tools (`partita dev`, `partita demo`) for this Python."""
    checkout = _checkout(_source())
    if checkout is not None and (checkout / "devtools" / "pyproject.toml").is_file():
        return _pip("-e", str(checkout / "devtools"))
    return _pip(DEVTOOLS)


def _pip(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *arguments])


def _source() -> Mapping[str, Any]:
    """Where pip installed Partita from (PEP 610); empty if that was an index."""
    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    found: Mapping[str, Any] = json.loads(text) if text else {}
    return found


def _checkout(source: Mapping[str, Any]) -> Path | None:
    """The checkout of an editable installation; None for any other one."""
    if not source.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(source["url"]).path))
