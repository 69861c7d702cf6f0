"""Parts of an expression: their types, as far as they are known, and how their values are computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from partita_api.session.cel.values import (
    OVERLOADS,
    ExpressionError,
    ListType,
    Other,
    Scalar,
    Type,
    Value,
    check_elements,
    equal,
    has_element,
    is_output,
    type_error,
    type_of,
    value_of,
)

MAX_DEPTH: Final = 32
"""Most levels of an expression, so that neither parsing nor evaluating it needs a deep stack."""

Outputs = Callable[[str], Any]
"""An output by its name or number; raises ExpressionError if there is none."""


@dataclass(frozen=True)
class Term:
    """A part of an expression."""

    type: Type
    value: Callable[[Outputs], Value]
    """Its value for certain outputs; raises ExpressionError."""
    depth: int = 1
    constant: bool | int | float | str | None = None
    """Its value if that does not depend on outputs."""

    def __post_init__(self) -> None:
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"the expression has more than {MAX_DEPTH} levels; write a shorter one")


def constant(value: bool | int | float | str) -> Term:
    """A number, a text or a truth value."""
    return Term(type_of(value), lambda _: value, constant=value)


def output(name: str, type: Type) -> Term:
    """One output of the upstream module."""
    check_elements(name, type.shape if isinstance(type, ListType) else ())

    def value(outputs: Outputs) -> Value:
        found = outputs(name)
        check_elements(name, found.shape)
        return value_of(found)

    return Term(type, value)


def called(operator: str, *operands: Term) -> Term:
    """An operator or a function of single values."""
    signatures = {types: found for (name, types), found in OVERLOADS.items() if name == operator}
    given = tuple(operand.type for operand in operands)
    results = {found.result for types, found in signatures.items() if all(map(_may_be, given, types))}
    if not results:
        raise type_error(operator, given)
    parts = [operand.value for operand in operands]

    def value(outputs: Outputs) -> Value:
        values = [part(outputs) for part in parts]
        types = tuple(map(type_of, values))
        if types not in signatures:
            raise type_error(operator, types)
        return signatures[types].apply(*values)

    return Term(next(iter(results)) if len(results) == 1 else Other.UNKNOWN, value, _above(*operands))


def element(of: Term, index: Term) -> Term:
    """A part of an output, by its index from 0."""
    if not is_output(of.type) or not _may_be(index.type, Scalar.INT):
        raise ExpressionError(f"an index is an integer, of a list that is an output: not {index.type} of {of.type}")
    type: Type = Other.UNKNOWN
    if isinstance(of.type, ListType):
        if index.constant is not None:
            _in_range(index.constant, of.type.shape[0])
        rest = of.type.shape[1:]
        type = ListType(of.type.element, rest) if rest else of.type.element

    def value(outputs: Outputs) -> Value:
        values, number = of.value(outputs), index.value(outputs)
        if isinstance(values, bool | int | float | str | list) or type_of(number) is not Scalar.INT:
            raise type_error("[ ]", (type_of(values), type_of(number)))
        return value_of(values[_in_range(number, values.shape[0])])

    return Term(type, value, _above(of, index))


def size(of: Term) -> Term:
    """The length of a text, or of the first dimension of an output."""
    if not is_output(of.type):
        return called("size", of)

    def value(outputs: Outputs) -> Value:
        found = of.value(outputs)
        if isinstance(found, str):
            return len(found)
        if isinstance(found, bool | int | float | list):
            raise type_error("size", (type_of(found),))
        return found.shape[0]

    return Term(Scalar.INT, value, _above(of))


def compared(left: Term, right: Term, equals: bool) -> Term:
    """Whether two single values are equal, or are not."""
    if not _comparable(left.type, right.type):
        raise type_error("==" if equals else "!=", (left.type, right.type))

    def value(outputs: Outputs) -> Value:
        values = _single(left.value(outputs)), _single(right.value(outputs))
        return equal(*values) is equals

    return Term(Scalar.BOOL, value, _above(left, right))


def found_in(expected: Term, values: Term) -> Term:
    """Whether a list in brackets, or an output of one dimension, has a value."""
    known = values.type if isinstance(values.type, ListType) else None
    if (known is None and values.type not in (Other.LIST, Other.UNKNOWN)) or (
        known is not None and (len(known.shape) > 1 or not _comparable(expected.type, known.element))
    ):
        raise type_error("in", (expected.type, values.type))

    def value(outputs: Outputs) -> Value:
        single, elements = _single(expected.value(outputs)), values.value(outputs)
        if isinstance(elements, list):
            return any(equal(each, single) for each in elements)
        if isinstance(elements, bool | int | float | str) or len(elements.shape) > 1:
            raise type_error("in", (type_of(single), type_of(elements)))
        return has_element(elements, single)

    return Term(Scalar.BOOL, value, _above(expected, values))


def listed(elements: Sequence[Term]) -> Term:
    """A list in brackets, of constants."""
    values = [each.constant for each in elements if each.constant is not None]
    if len(values) < len(elements):
        raise ExpressionError("a list in brackets has constants only")
    return Term(Other.LIST, lambda _: values)


def both(left: Term, right: Term) -> Term:
    """`&&`: false if one side is, even if the other one has no value."""
    return _decided("&&", left, right, by=False)


def either(left: Term, right: Term) -> Term:
    """`||`: true if one side is, even if the other one has no value."""
    return _decided("||", left, right, by=True)


def choice(condition: Term, then: Term, otherwise: Term) -> Term:
    """`condition ? then : otherwise`."""
    if not _may_be(condition.type, Scalar.BOOL):
        raise type_error("?", (condition.type,))
    if Other.UNKNOWN not in (then.type, otherwise.type) and then.type != otherwise.type:
        raise type_error("? :", (then.type, otherwise.type))

    def value(outputs: Outputs) -> Value:
        return (then if _truth("?", condition.value(outputs)) else otherwise).value(outputs)

    type = then.type if then.type == otherwise.type else Other.UNKNOWN
    return Term(type, value, _above(condition, then, otherwise))


def _decided(operator: str, left: Term, right: Term, by: bool) -> Term:
    for side in (left, right):
        if not _may_be(side.type, Scalar.BOOL):
            raise type_error(operator, (side.type,))

    def value(outputs: Outputs) -> Value:
        try:
            if _truth(operator, left.value(outputs)) is by:
                return by
        except ExpressionError:
            if _truth(operator, right.value(outputs)) is by:
                return by
            raise
        return _truth(operator, right.value(outputs))

    return Term(Scalar.BOOL, value, _above(left, right))


def _truth(operator: str, value: Value) -> bool:
    if not isinstance(value, bool):
        raise type_error(operator, (type_of(value),))
    return value


def _single(value: Value) -> Value:
    if type_of(value) is Other.LIST:
        raise ExpressionError("== and != compare single values; choose an element of a list, such as [0]")
    return value


def _in_range(number: Value, count: int) -> int:
    if not isinstance(number, int) or not 0 <= number < count:
        raise ExpressionError(f"index {number} is out of range: there are {count} elements")
    return number


def _may_be(given: Type, expected: Type) -> bool:
    return given in (Other.UNKNOWN, expected)


def _comparable(left: Type, right: Type) -> bool:
    known = {type for type in (left, right) if type is not Other.UNKNOWN}
    numbers = known <= {Scalar.INT, Scalar.DOUBLE}
    return numbers or (len(known) == 1 and known <= {*Scalar})


def _above(*parts: Term) -> int:
    return 1 + max(part.depth for part in parts)
