"""Reads manifests and profiles from files, for all offline subcommands."""

import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from partita_api.manifests import ManifestError, Manifests, parse_manifests
from partita_api.profile import Profile
from partita_operator.cli.errors import BadInput


def read_manifests(paths: Iterable[Path]) -> Manifests:
    """All resources in files, and in the YAML files of directories. Raises BadInput, also for duplicates."""
    found = Manifests()
    for path in paths:
        files = sorted(path.rglob("*.y*ml")) if path.is_dir() else [path]
        if not files:
            raise BadInput(f"{path} has no YAML files")
        for file in files:
            try:
                found += parse_manifests(file.read_text(), str(file))
            except (OSError, UnicodeDecodeError) as error:
                raise BadInput(f"{file} cannot be read: {error}") from error
            except ManifestError as error:
                raise BadInput(str(error)) from error
    for resources in (found.pools, found.sessions, found.plans):
        keys = Counter((r.kind, r.metadata.namespace or "default", r.metadata.name) for r in resources)
        for (kind, namespace, name), count in keys.items():
            if count > 1:
                place = "" if kind == "GPUPool" else f"{namespace}/"
                raise BadInput(f"{kind} {place}{name} is in the manifests {count} times: give it once")
    return found


def read_profiles(directory: Path, manifests: Iterable[Path]) -> tuple[Profile, ...]:
    """The Profile documents (*.json) in a directory, for the models in `manifests`. Raises BadInput."""
    profiles = []
    for file in sorted(directory.glob("*.json")):
        try:
            profiles.append(Profile.model_validate_json(file.read_text()))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise BadInput(f"{file} is not a profile: {error}") from error
    if not profiles:
        command = shlex.join(["partita", "profile", *map(str, manifests), "--out", str(directory)])
        raise BadInput(f"{directory} has no profiles; make them with: {command}")
    return tuple(profiles)
