"""The reference of a Python package: the names of its `__all__` with signature, docstring and public attributes."""

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_origin, get_type_hints

from pydantic import BaseModel

from partita_devtools.docs.markdown import anchor, cell, code, heading, page, table

_DOCTEST: Final = re.compile(r"((?:^ *>>>.*\n?(?:^ *\S.*\n?)*)(?:\n(?=^ *>>>))?)+", re.MULTILINE)
_LONGEST: Final = 100
"""Characters of a signature on one line."""


def package_page(name: str) -> str:
    """The page of one package."""
    package = importlib.import_module(name)
    return page(
        f"# {code(name)}",
        docstring(package),
        *(_section(public, getattr(package, public)) for public in sorted(package.__all__, key=str.lower)),
    )


def docstring(documented: Any) -> str:
    """A docstring as Markdown: doctests become blocks of code."""
    text = inspect.cleandoc(documented.__doc__ or "")
    return _DOCTEST.sub(lambda match: _block("pycon", inspect.cleandoc(match.group(0))) + "\n", text).strip()


def _section(name: str, documented: Any) -> str:
    title = heading(2, code(name), anchor(name))
    if inspect.isclass(documented):
        own_constructor = "__init__" in vars(documented) and not dataclasses.is_dataclass(documented)
        opening = f"class {signature(name, documented.__init__, bound=True)}" if own_constructor else f"class {name}"
        return page(title, _block("python", opening), docstring(documented), *_members(documented)).rstrip()
    if inspect.isroutine(documented):
        return page(title, _block("python", signature(name, documented)), docstring(documented)).rstrip()
    if get_origin(documented) is not None:
        return page(title, _block("python", f"{name} = {_annotation(documented)}")).rstrip()
    if isinstance(documented, Mapping):
        return page(title, f"A mapping with the keys {', '.join(code(str(key)) for key in documented)}.").rstrip()
    return page(title, f"A constant of type {code(type(documented).__name__)}.").rstrip()


def signature(name: str, function: Any, *, bound: bool = False) -> str:
    """The signature of a function, with one parameter on a line if it is long. `bound`: without the first parameter."""
    found = inspect.signature(function)
    if bound:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    line = f"{name}{_readable(str(found))}".removesuffix(" -> None")
    if len(line) <= _LONGEST:
        return line
    returned = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    parameters = "\n".join(f"    {line}," for line in _parameters(found))
    return f"{name}(\n{parameters}\n){returned}".removesuffix(" -> None")


def _parameters(found: inspect.Signature) -> Iterator[str]:
    """Each parameter, and the star in front of those that are given by name only."""
    kinds = [parameter.kind for parameter in found.parameters.values()]
    bare_star = inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds
    for kind, parameter in zip(kinds, found.parameters.values(), strict=True):
        if bare_star and kind is inspect.Parameter.KEYWORD_ONLY:
            yield "*"
            bare_star = False
        yield _readable(str(parameter))


def _members(documented: type) -> Iterator[str]:
    """Fields, then methods that the class itself defines."""
    if rows := list(_fields(documented)):
        yield table(["field", "type", "description"], rows)
    for name, member in vars(documented).items():
        if name.startswith("_"):
            continue
        bound = not isinstance(member, staticmethod)
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(member, property):
            yield page(f"**{code(name)}**", docstring(member)).rstrip()
        elif inspect.isfunction(function) and function.__doc__:
            yield page(_block("python", signature(name, function, bound=bound)), docstring(function)).rstrip()


def _fields(documented: type) -> Iterator[list[str]]:
    if issubclass(documented, BaseModel):
        plain = get_type_hints(documented)
        for name, field in documented.model_fields.items():
            yield [code(name), code(_annotation(plain[name])), cell(field.description or "")]
    elif issubclass(documented, enum.Enum):
        for member in documented:
            yield [code(member.name), code(repr(member.value)), ""]
    elif dataclasses.is_dataclass(documented) or issubclass(documented, tuple):
        described = attribute_docstrings(documented)
        for name, annotation in inspect.get_annotations(documented).items():
            if not name.startswith("_"):
                yield [code(name), code(_annotation(annotation)), cell(described.get(name, ""))]


def attribute_docstrings(documented: type) -> dict[str, str]:
    """The strings below the attributes of a class, by name."""
    source = inspect.getsource(documented)
    found = re.findall(r'^    (\w+):[^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found}


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _readable(text)


def _readable(text: str) -> str:
    """Names without their modules and quotes, members of enumerations by their value, and functions by their name."""
    values = re.sub(r"<\w+(?:\.\w+)+: ('[^']*'|[\w.]+)>", r"\1", text)
    values = re.sub(r"<built-in \w+ (\w+)>", r"\1", values)
    values = re.sub(r"-> '(\w+)'$", r"-> \1", values)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", values)


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.strip()}\n```"
