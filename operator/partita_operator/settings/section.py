"""What all sections of the settings have in common."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_origin

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from partita_api.manifests import NotYamlError, parse_yaml
from partita_api.meta import NAME_PATTERN, SpecModel

URL_PATTERN: Final = r"^https?://.+"
GIBIBYTES_PATTERN: Final = r"^[1-9][0-9]{0,5}Gi$"
URL_OR_EMPTY_PATTERN: Final = r"^(https?://.+)?$"

Port = Annotated[int, Field(ge=1, le=65535)]
Namespace = Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]


@dataclass(frozen=True)
class FromSecret:
    """Marks a secret: it comes from an environment variable only, and the chart takes it from a Secret."""

    chart_key: str
    """The chart key that names the Secret."""


@dataclass(frozen=True)
class SetByChart:
    """Marks a setting that the chart's templates derive from the release: values.yaml does not have it."""


def plain(secret: SecretStr | None) -> str | None:
    """A secret as text, for the request that needs it."""
    return secret.get_secret_value() if secret is not None else None


class Section(SpecModel):
    """A part of the settings: immutable, camelCase in YAML, unknown keys refused.

    Flags and environment variables are text; lists and objects are written there as JSON or YAML.
    """

    @field_validator("*", mode="before")
    @classmethod
    def _parse_text(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, str) and get_origin(annotation) in (dict, tuple):
            return parse_text(value)
        return value


def parse_text(text: str) -> Any:
    """A list or object written as JSON or YAML. Raises ValueError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return parse_yaml(text)
    except NotYamlError as error:
        raise ValueError("this is not JSON or YAML") from error
