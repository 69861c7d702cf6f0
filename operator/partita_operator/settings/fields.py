"""Every setting by its names: its chart key, its flag and its environment variable."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.section import FromSecret, Section, SetByChart

VARIABLE_PREFIX: Final = "PARTITA_OPERATOR__"
NESTED_DELIMITER: Final = "__"


@dataclass(frozen=True)
class Setting:
    """One setting: a field that is not a section."""

    names: tuple[str, ...]
    """Field names from the root of the model, such as ("ray", "serve_url")."""
    keys: tuple[str, ...]
    """The same in the config file: ("ray", "serveUrl")."""
    field: FieldInfo

    @property
    def key(self) -> str:
        """The chart key, such as ray.serveUrl; of a secret, the key that names the Secret."""
        return self.secret.chart_key if self.secret is not None else ".".join(self.keys)

    @property
    def flag(self) -> str:
        """The flag, such as --ray-serve-url."""
        return "--" + "-".join(self.names).replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, such as PARTITA_OPERATOR__RAY__SERVE_URL."""
        return VARIABLE_PREFIX + NESTED_DELIMITER.join(self.names).upper()

    @property
    def secret(self) -> FromSecret | None:
        """The Secret that it comes from; None if it is not secret."""
        return next((mark for mark in self.field.metadata if isinstance(mark, FromSecret)), None)

    @property
    def in_chart(self) -> bool:
        """Whether values.yaml has it."""
        return not any(isinstance(mark, FromSecret | SetByChart) for mark in self.field.metadata)

    @property
    def repeats(self) -> bool:
        """Whether it is a list of words, whose flag may be repeated."""
        annotation = self.field.annotation
        if get_origin(annotation) is not tuple:
            return False
        item = get_args(annotation)[0]
        return item is str or (get_origin(item) is Annotated and get_args(item)[0] is str)


def all_settings(section: type[Section] = OperatorSettings) -> Iterator[Setting]:
    """All settings, in the order of the model."""
    for name, field in section.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            for inner in all_settings(field.annotation):
                yield Setting((name, *inner.names), (key, *inner.keys), inner.field)
        else:
            yield Setting((name,), (key,), field)


def nested(values: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """Values by path as nested objects."""
    found: dict[str, Any] = {}
    for path, value in values.items():
        section = found
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section[path[-1]] = value
    return found
