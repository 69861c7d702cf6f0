"""Free-form JSON in a spec: keyword arguments of bounded depth and size. A schema can bound neither of them."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

MAX_DEPTH: Final = 16
"""Levels of nesting: a list of numbers is one."""
MAX_CHARACTERS: Final = 32_768
"""About the length of the arguments as JSON."""
MAX_KEY: Final = 253
"""Characters of a key. The API server reads no key of more than 1024 in server-side apply."""
BOUNDS: Final = f"at most {MAX_DEPTH} levels of nesting and {MAX_CHARACTERS} characters"
"""For descriptions of fields."""


def _bounded(arguments: dict[str, Any]) -> dict[str, Any]:
    """Ends as soon as a bound is exceeded: YAML with aliases can be exponentially larger than its text."""
    characters = 0
    pending: list[tuple[Any, int]] = [(arguments, 0)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise ValueError(f"at most {MAX_DEPTH} levels of nesting are allowed; put deeper data into a file")
            if isinstance(value, dict) and any(len(str(key)) > MAX_KEY for key in value):
                raise ValueError(f"at most {MAX_KEY} characters of a key are allowed; put data into values")
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            characters += 2 + len(inner)
            pending.extend((item, depth + 1) for item in inner)
        elif value is None or isinstance(value, str | int | float):
            characters += len(str(value))
        else:
            raise ValueError(f"a value of type {type(value).__name__} is not JSON; write it as text")
        if characters > MAX_CHARACTERS:
            raise ValueError(f"at most {MAX_CHARACTERS} characters of JSON are allowed; put larger data into a file")
    return arguments


Arguments = Annotated[dict[str, Any], Field(max_length=64), AfterValidator(_bounded)]
"""Keyword arguments of a Python callable."""
