"""The flags of the operator's settings, one for each setting that is not secret."""

import json
from collections.abc import Callable, Mapping
from enum import EnumMeta
from pathlib import Path
from typing import Any, Final, TypeVar, get_origin

import click

from partita_operator.cli.errors import BadInput
from partita_operator.settings.fields import Setting, all_settings
from partita_operator.settings.loading import DEFAULT_CONFIG_FILE, BadSettingsError, load_settings
from partita_operator.settings.model import OperatorSettings

Command = TypeVar("Command", bound=Callable[..., Any])

PRECEDENCE: Final = (
    "Flags override environment variables, which override the config file. "
    "--ray-serve-url is the variable PARTITA_OPERATOR__RAY__SERVE_URL, and ray.serveUrl in the config file and in the "
    "chart's values. Lists and objects are written as JSON or YAML. Secrets have no flag."
)
_METAVARS: Final[Mapping[Any, str]] = {bool: "BOOLEAN", int: "INTEGER", float: "NUMBER", Path: "PATH"}


def settings_options(command: Command) -> Command:
    """Adds --config and a flag for each setting; `read_settings` takes their values."""
    for setting in reversed([s for s in all_settings() if s.secret is None]):
        command = click.option(
            setting.flag,
            "__".join(setting.names),
            multiple=setting.repeats,
            metavar=_metavar(setting),
            help=_help(setting),
        )(command)
    return click.option(
        "--config",
        "config_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"YAML file with settings. Default: {DEFAULT_CONFIG_FILE} if it exists.",
    )(command)


def read_settings(config_file: Path | None, flags: Mapping[str, Any]) -> OperatorSettings:
    """The settings from the values of `settings_options`, the environment and the file. Raises BadInput."""
    given = {
        setting.keys: value
        for setting in all_settings()
        if (value := flags.get("__".join(setting.names))) not in (None, ())
    }
    try:
        return load_settings(given, config_file)
    except BadSettingsError as error:
        raise BadInput(f"The operator's settings are wrong; it does not start:\n{error}") from error


def _metavar(setting: Setting) -> str:
    annotation = setting.field.annotation
    if setting.repeats:
        return "TEXT"
    if get_origin(annotation) in (tuple, dict):
        return "YAML"
    if isinstance(annotation, EnumMeta):
        return f"[{'|'.join(str(member.value) for member in annotation.__members__.values())}]"
    return _METAVARS.get(annotation, "TEXT")


def _help(setting: Setting) -> str:
    """The description, with the default and the bounds."""
    field = setting.field
    default = field.default
    notes = []
    if default not in ("", (), {}):
        notes.append(f"default: {json.dumps(default) if isinstance(default, dict) else default}")
    low, high = _bounds(field.metadata)
    if low is not None or high is not None:
        notes.append(f"{low} to {high}" if high is not None else f"at least {low}")
    if setting.repeats:
        notes.append("may be repeated")
    return f"{field.description}  [{'; '.join(notes)}]" if notes else str(field.description)


def _bounds(marks: list[Any]) -> tuple[Any, Any]:
    low = next((mark.ge for mark in marks if hasattr(mark, "ge")), None)
    return low, next((mark.le for mark in marks if hasattr(mark, "le")), None)
