"""Reads the settings: flags before environment variables before the config file before defaults."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from partita_api.manifests import NotYamlError, parse_yaml
from partita_operator.settings.fields import NESTED_DELIMITER, VARIABLE_PREFIX, Setting, all_settings, nested
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.section import Section

DEFAULT_CONFIG_FILE: Final = Path("/etc/partita/config.yaml")
"""Where the chart mounts the config file."""

_SETTINGS: Final = tuple(all_settings())
_ABSENT: Final = object()
_SHOWN_CHARACTERS: Final = 200
_SHOULD: Final = re.compile(r"^(Input|String|Tuple|Dictionary|Value) should")
"""How pydantic's messages begin."""


class BadSettingsError(ValueError):
    """Settings that cannot be used; the message has one line for each, with its chart key."""


def load_settings(flags: Mapping[tuple[str, ...], Any], config_file: Path | None = None) -> OperatorSettings:
    """The settings from `flags` (values by `Setting.keys`), the environment, the file and the defaults.

    Without `config_file`, the default one is read if it exists. Raises BadSettingsError.
    """
    if config_file is None and DEFAULT_CONFIG_FILE.is_file():
        config_file = DEFAULT_CONFIG_FILE
    file = _read(config_file) if config_file is not None else {}

    class Sources(OperatorSettings, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=VARIABLE_PREFIX,
            env_nested_delimiter=NESTED_DELIMITER,
            env_ignore_empty=True,
            enable_decoding=False,
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            environment = InitSettingsSource(settings_cls, _by_keys(env_settings()))
            return init_settings, environment, InitSettingsSource(settings_cls, file)

    problems = [*_unknown_variables(), *_secrets_in(file, str(config_file))]
    try:
        found = Sources(**nested(dict(flags)))
    except ValidationError as error:
        problems += [_explained(problem, flags, file, str(config_file)) for problem in error.errors()]
    if problems:
        raise BadSettingsError("\n".join(f"  {problem}" for problem in problems))
    return OperatorSettings(**{name: getattr(found, name) for name in OperatorSettings.model_fields})


def settings_yaml(settings: OperatorSettings) -> str:
    """The settings as a config file, without secrets."""
    shown: dict[tuple[str, ...], Any] = {}
    values = settings.model_dump(mode="json", by_alias=True)
    for setting in _SETTINGS:
        value = _at(values, setting.keys)
        if setting.secret is None:
            shown[setting.keys] = value
        elif value:
            shown[setting.keys] = "(hidden)"
    return yaml.safe_dump(nested(shown), sort_keys=False, allow_unicode=True, width=120)


def _by_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by field names as values by the keys of the config file."""
    found = {setting.keys: _at(values, setting.names) for setting in _SETTINGS}
    return nested({keys: value for keys, value in found.items() if value is not _ABSENT})


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettingsError(f"  {path} cannot be read: {error}") from error
    except NotYamlError as error:
        raise BadSettingsError(f"  {path} is not YAML: {error}") from error
    if not isinstance(found, dict | None):
        raise BadSettingsError(f"  {path} is not an object with settings by name")
    return found or {}


def _unknown_variables() -> list[str]:
    known = {setting.variable for setting in _SETTINGS}
    unknown = sorted(name for name in os.environ if name.startswith(VARIABLE_PREFIX) and name not in known)
    return [f"{name}: no setting has this environment variable; see `partita operator run --help`" for name in unknown]


def _secrets_in(file: Mapping[str, Any], path: str) -> list[str]:
    return [
        f"{'.'.join(setting.keys)} (in {path}): a secret must not be in the config file; {_way_of_secret(setting)}"
        for setting in _SETTINGS
        if setting.secret is not None and _at(file, setting.keys) is not _ABSENT
    ]


def _way_of_secret(setting: Setting) -> str:
    return f"name its Secret in {setting.key} of the chart, or set {setting.variable}"


def _explained(problem: ErrorDetails, flags: Mapping[tuple[str, ...], Any], file: Mapping[str, Any], path: str) -> str:
    """One problem: the chart key, the value, where it comes from, and what is allowed."""
    place = problem["loc"]
    setting = next((s for s in _SETTINGS if place[: len(s.keys)] == s.keys), None)
    key = ".".join(map(str, place)) or "the settings"
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key{_known_keys(place)}"
    if problem["type"] == "model_type" and setting is None:
        return f"{key}: {problem['input']!r} is wrong: it must be an object{_known_keys((*place, ''))}"
    message = _SHOULD.sub("it must", problem["msg"].removeprefix("Value error, "))
    if setting is None:
        return f"{key}: {message}"
    if setting.secret is not None:
        return f"{setting.key}: the value in {setting.variable} is wrong: {message}"
    if setting.keys in flags:
        source = f"flag {setting.flag}"
    elif os.environ.get(setting.variable):
        source = f"environment variable {setting.variable}"
    elif _at(file, setting.keys) is not _ABSENT:
        source = path
    else:
        source = "default"
    value = repr(problem["input"])
    shown = value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."
    return f"{key}: {shown} (from {source}) is wrong: {message}"


def _known_keys(place: tuple[int | str, ...]) -> str:
    """The known keys of the section that has an unknown one; empty if it is not in a section."""
    section: Any = OperatorSettings
    for key in place[:-1]:
        by_key = {field.alias: field.annotation for field in section.model_fields.values()}
        section = by_key.get(str(key))
        if not (isinstance(section, type) and issubclass(section, Section)):
            return ""
    where = ".".join(map(str, place[:-1])) or "the top level"
    return f"; {where} has {', '.join(sorted(str(field.alias) for field in section.model_fields.values()))}"


def _at(values: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of nested objects, or _ABSENT."""
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return _ABSENT
        values = values[key]
    return values
