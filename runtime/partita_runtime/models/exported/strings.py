"""What each string of an exported program may be.

torch uses these strings as code: names become source code, operators are looked up in all of torch, expressions and
trees are evaluated. A field that is not in `RULES` may not be used.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

import torch

from partita_runtime.models.exported.errors import ForbiddenContentError
from partita_runtime.models.exported.expressions import SYMBOL, check_expression

Rule = Callable[[str], None]
"""Raises ForbiddenContentError for a forbidden string."""

_NAME: Final = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,999}", re.ASCII)
_PATH: Final = re.compile(r"((?!__)[A-Za-z0-9_-]{1,500}(\.|$)){1,100}(?<!\.)", re.ASCII)
_PAYLOAD: Final = re.compile(r"(weight|tensor)_[0-9]{1,9}", re.ASCII)
_DEVICE: Final = re.compile(r"cpu|cuda", re.ASCII)

_ATEN: Final = re.compile(r"torch\.ops\.aten\.(\w+)\.(\w+)", re.ASCII)
_OPENS_FILES: Final = frozenset({"from_file"})
_OTHER_OPERATORS: Final = re.compile(
    r"_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|pos|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.trunc"
    r"|torch\.(sym_(float|int|max|min|not|ite|sum)|_sym_sqrt)"
    r"|torch\.ops\.higher_order\.(wrap_with_set_grad_enabled|wrap_with_autocast|cond)",
    re.ASCII,
)

_SEQUENCES: Final = ("builtins.tuple", "builtins.list")
_MAPPINGS: Final = ("builtins.dict", "collections.OrderedDict")


def _any_text(_: str) -> None:
    """Data that torch neither evaluates nor looks up."""


def _like(pattern: re.Pattern[str], what: str) -> Rule:
    def rule(text: str) -> None:
        if not pattern.fullmatch(text):
            raise ForbiddenContentError(f"the {what} {text!r:.200}")

    return rule


def _empty_or(other: Rule) -> Rule:
    return lambda text: other(text) if text else None


def _operator(target: str) -> None:
    """Operators of ATen that do not open files, and arithmetic on sizes."""
    if _OTHER_OPERATORS.fullmatch(target):
        return
    found = _ATEN.fullmatch(target)
    if found is not None and found[1] not in _OPENS_FILES:
        full_name = f"aten::{found[1]}" + ("" if found[2] == "default" else f".{found[2]}")
        # Those without a kernel are functions of TorchScript; one of them writes files.
        if torch._C._dispatch_has_kernel(full_name):
            return
    raise ForbiddenContentError(f"the operator {target!r:.200}")


def _tree(text: str) -> None:
    """How inputs or outputs are nested: tuples, lists and dictionaries."""
    document = json.loads(text)
    if not isinstance(document, list) or len(document) != 2 or document[0] != 1:
        raise ForbiddenContentError(f"the structure {text!r:.200}")
    _tree_node(document[1])


def _tree_node(node: Any) -> None:
    match node:
        case {"type": None, "context": None, "children_spec": [], **other} if not other:
            return None
        case {"type": str(kind), "context": "null", "children_spec": list(children), **other} if not other:
            if kind in _SEQUENCES:
                return _each(children)
        case {"type": str(kind), "context": str(keys), "children_spec": list(children), **other} if not other:
            if kind in _MAPPINGS and isinstance(names := json.loads(keys), list):
                for key in names:
                    _name(key if isinstance(key, str) else repr(key))
                return _each(children)
    raise ForbiddenContentError(f"the structure {node!r:.200}; allowed are tuples, lists and dictionaries")


def _each(children: list[Any]) -> None:
    for child in children:
        _tree_node(child)


_name: Final = _like(_NAME, "name")
_path: Final = _like(_PATH, "name")

RULES: Final[dict[str, Rule]] = {
    "Argument.as_operator": _operator,
    "Argument.as_string": _any_text,
    "Argument.as_string_to_argument": _name,
    "Argument.as_strings": _any_text,
    "BufferMutationSpec.buffer_name": _path,
    "ConstantValue.as_string": _any_text,
    "Device.type": _like(_DEVICE, "device"),
    "ExportedProgram.opset_version": _name,
    "ExportedProgram.range_constraints": _like(SYMBOL, "symbol"),
    "ExportedProgram.torch_version": _any_text,
    "ExportedProgram.verifiers": _name,
    "Graph.sym_bool_values": _name,
    "Graph.sym_float_values": _name,
    "Graph.sym_int_values": _name,
    "Graph.tensor_values": _name,
    "GraphArgument.name": _name,
    "InputToBufferSpec.buffer_name": _path,
    "InputToConstantInputSpec.name": _name,
    "InputToParameterSpec.parameter_name": _path,
    "InputToTensorConstantSpec.tensor_constant_name": _path,
    "ModuleCallEntry.fqn": _empty_or(_path),
    "ModuleCallSignature.forward_arg_names": _name,
    "ModuleCallSignature.in_spec": _tree,
    "ModuleCallSignature.out_spec": _tree,
    "NamedArgument.name": _empty_or(_name),
    "Node.name": _name,
    "Node.target": _operator,
    "ParameterMutationSpec.parameter_name": _path,
    "PayloadConfig.config": _path,
    "PayloadMeta.path_name": _like(_PAYLOAD, "tensor's file"),
    "SymBoolArgument.as_name": _name,
    "SymExpr.expr_str": check_expression,
    "SymFloatArgument.as_name": _name,
    "SymIntArgument.as_name": _name,
    "TensorArgument.name": _name,
    "UserInputMutationSpec.user_input_name": _name,
}
"""The rule of each field of torch's schema with strings; for a dictionary, of its keys."""
