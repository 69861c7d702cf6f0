"""Documents of a .pt2 file as torch's data classes, with every value checked before torch uses it."""

import json
import types
import typing
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from torch._export.serde import schema
from torch._export.serde.serialize import _dict_to_dataclass
from torch._export.serde.union import _Union

from partita_runtime.models.exported.errors import ForbiddenContentError
from partita_runtime.models.exported.strings import RULES

_Document = TypeVar("_Document")


def exported_program(document: bytes) -> schema.ExportedProgram:
    """A program with only allowed values. Raises ForbiddenContentError, and any error if it is not a program."""
    program = _parsed(schema.ExportedProgram, document)
    _drop_what_serving_does_not_need(program)
    _check(schema.ExportedProgram, program, "")
    return program


def payloads(document: bytes) -> dict[str, schema.PayloadMeta]:
    """Where each tensor is in the archive. Raises like `exported_program`."""
    config = _parsed(schema.PayloadConfig, document)
    _check(schema.PayloadConfig, config, "")
    if pickled := [name for name, payload in config.config.items() if payload.use_pickle]:
        raise ForbiddenContentError(f"the pickled object {pickled[0]}")
    return config.config


def _parsed(kind: type[_Document], document: bytes) -> _Document:
    parsed: _Document = _dict_to_dataclass(kind, json.loads(document))  # type: ignore[no-untyped-call]
    return parsed


def _drop_what_serving_does_not_need(program: schema.ExportedProgram) -> None:
    """torch would run the guards, import the types of named tuples, and look names in metadata up."""
    program.guards_code = []
    program.graph_module.metadata = {}
    program.graph_module.treespec_namedtuple_fields = {}
    program.graph_module.module_call_graph = program.graph_module.module_call_graph[:1]
    _drop_metadata(program.graph_module.graph)


def _drop_metadata(graph: schema.Graph) -> None:
    for node in graph.nodes:
        node.metadata = {}
        for argument in node.inputs:
            if argument.arg.type == "as_graph":
                _drop_metadata(argument.arg.as_graph.graph)


def _check(kind: Any, value: Any, field: str) -> None:
    """Compare a value with its type in torch's schema, and strings with the rule of their field."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is not None:
            _check(parts[0], value, field)
    elif origin is list and type(value) is list:
        for item in value:
            _check(parts[0], item, field)
    elif origin is dict and type(value) is dict:
        for key, item in value.items():
            _check(str, key, field)
            _check(parts[1], item, field)
    elif is_dataclass(kind) and isinstance(value, typing.cast(type, kind)):
        data_class: Any = type(value)
        names = [str(value.type)] if isinstance(value, _Union) else [f.name for f in fields(data_class)]
        for name in names:
            _check(_types(data_class)[name], getattr(value, name), f"{data_class.__name__}.{name}")
    elif kind is str and type(value) is str:
        if field not in RULES:
            raise ForbiddenContentError(f"{field}: {value!r:.200}")
        RULES[field](value)
    elif not _is_number(kind, value):
        raise ForbiddenContentError(f"the value {value!r:.200} as {field}")


def _is_number(kind: Any, value: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return type(value) is int and value in set(kind)
    return type(value) is kind and kind in (int, bool, float)


@cache
def _types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, globalns=vars(schema))
