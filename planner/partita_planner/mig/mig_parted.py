"""What mig-parted reads: `version: v1`, and configurations of nodes by name.

The rules are those of mig-parted's own reader (api/spec/v1 and pkg/types of https://github.com/NVIDIA/mig-parted): no
other fields, `devices` either `all` or indices, slices if and only if MIG is enabled.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from partita_api.manifests import NotYamlError, parse_yaml
from partita_planner.mig.errors import BadConfigurationError

VERSION: Final = "v1"
CONFIGURATIONS: Final = "mig-configs"
_FIELDS: Final = frozenset({"device-filter", "devices", "mig-enabled", "mig-devices"})
_PROFILE: Final = re.compile(r"(?:[1-8]c\.)?[1-8]g\.[1-9][0-9]*gb(?:[+-][a-zA-Z][a-zA-Z0-9.]*)*")

Entries = list[dict[str, Any]]
"""A configuration: each entry says for some devices of a node whether and how they are cut."""


def render(configurations: Mapping[str, Entries]) -> str:
    """The document with these configurations: the same text for the same ones. Raises BadConfigurationError."""
    document = {"version": VERSION, CONFIGURATIONS: dict(configurations)}
    _check(document)
    return yaml.safe_dump(document, sort_keys=True)


def parse(text: str) -> dict[str, Entries]:
    """The configurations of a document. Raises BadConfigurationError where mig-parted would refuse it."""
    try:
        document = parse_yaml(text)
    except NotYamlError as error:
        raise BadConfigurationError(f"it is not YAML: {error}") from error
    _check(document)
    found: dict[str, Entries] = document.get(CONFIGURATIONS, {})
    return found


def _check(document: Any) -> None:
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise BadConfigurationError(f"version must be {VERSION}")
    if other := sorted(set(document) - {"version", CONFIGURATIONS}):
        raise BadConfigurationError(f"there are fields that mig-parted does not know: {', '.join(other)}")
    configurations = document.get(CONFIGURATIONS)
    if not isinstance(configurations, dict) or not configurations:
        raise BadConfigurationError(f"{CONFIGURATIONS} needs at least one configuration")
    for name, entries in configurations.items():
        if not isinstance(entries, list) or not entries:
            raise BadConfigurationError(f"configuration {name} needs at least one entry")
        for entry in entries:
            _check_entry(f"configuration {name}", entry)
        indices = [i for entry in entries if "device-filter" not in entry for i in _indices(entry)]
        if len(set(indices)) < len(indices):
            raise BadConfigurationError(f"configuration {name} names a device twice: keep one entry for it")


def _check_entry(where: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise BadConfigurationError(f"{where} has an entry that is not an object")
    if missing := sorted({"devices", "mig-enabled"} - set(entry)):
        raise BadConfigurationError(f"{where} has an entry without {' and '.join(missing)}")
    if other := sorted(set(entry) - _FIELDS):
        raise BadConfigurationError(f"{where} has fields that mig-parted does not know: {', '.join(other)}")
    devices, enabled, slices = entry["devices"], entry["mig-enabled"], entry.get("mig-devices")
    listed = isinstance(devices, list) and all(type(i) is int and i >= 0 for i in devices)
    if devices != "all" and not listed:
        raise BadConfigurationError(f"{where}: devices must be `all` or a list of indices")
    if not isinstance(enabled, bool):
        raise BadConfigurationError(f"{where}: mig-enabled must be true or false")
    if enabled and not isinstance(slices, dict):
        raise BadConfigurationError(f"{where}: mig-devices is missing where mig-enabled is true")
    if not enabled and slices:
        raise BadConfigurationError(f"{where}: there are mig-devices where mig-enabled is false")
    for profile, count in (slices or {}).items():
        if not _PROFILE.fullmatch(str(profile)):
            raise BadConfigurationError(f"{where}: {profile!r} is not a MIG profile; write one such as 1g.10gb")
        if type(count) is not int or count < 0:
            raise BadConfigurationError(f"{where}: {count!r} instances of {profile}; give a number of 0 or more")
    if slices and not any(slices.values()):
        raise BadConfigurationError(f"{where}: all counts in mig-devices are 0")


def _indices(entry: Mapping[str, Any]) -> list[int]:
    return [] if entry["devices"] == "all" else list(entry["devices"])
