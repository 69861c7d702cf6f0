"""The values of expressions, their types, and what operators do with them, as in CEL."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any, Final, Protocol

MAX_ELEMENTS: Final = 1024
"""Most elements of an output that an expression may read."""
MAX_TEXT_BYTES: Final = 65_536
"""Most bytes of one text that an expression may read."""

_INT64: Final = range(-(2**63), 2**63)


class ExpressionError(ValueError):
    """An expression is wrong, or has no value for these outputs; the message says why."""


class Scalar(StrEnum):
    """Types of single values."""

    BOOL = "bool"
    INT = "int"
    DOUBLE = "double"
    STRING = "string"


class Other(StrEnum):
    """Types of what is no single value."""

    OUTPUTS = "outputs"
    """All outputs; an expression can only choose one of them."""
    LIST = "list"
    """A list in brackets."""
    UNKNOWN = "unknown"
    """Any value: it is known when the expression is evaluated."""


@dataclass(frozen=True)
class ListType:
    """An output, or a part of it, with one dimension or more."""

    element: Scalar
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"list of {self.element} {[*self.shape]}"


Type = Scalar | Other | ListType


class Tensor(Protocol):
    """An output, or a part of it, such as an array of numpy."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions; none for a single value."""

    def __getitem__(self, index: int, /) -> Any:
        """The part with this index in the first dimension."""

    def item(self) -> Any:
        """A tensor without dimensions as a value of Python."""

    def tolist(self) -> Any:
        """All elements as values of Python, in nested lists."""


Value = bool | int | float | str | list[bool | int | float | str] | Tensor


def value_of(found: Any) -> Value:
    """What stands for an output, or a part of it: a single value if it has no dimension. Raises ExpressionError."""
    if getattr(found, "shape", None):
        tensor: Tensor = found
        return tensor
    single = found.item() if hasattr(found, "item") else found
    if isinstance(single, bytes):
        if len(single) > MAX_TEXT_BYTES:
            raise ExpressionError(f"a text has {len(single)} bytes; expressions read at most {MAX_TEXT_BYTES}")
        return single.decode("utf-8", errors="replace")
    if isinstance(single, int) and single not in _INT64:
        raise ExpressionError(f"{single} is larger than the integers of expressions, which have 64 bits with sign")
    if isinstance(single, bool | int | float | str):
        return single
    raise ExpressionError(f"an element is of type {type(single).__name__}, which expressions cannot read")


def type_of(value: Value) -> Type:
    """The type of a value. Of a list the shape only: what its elements are is known once they are read."""
    match value:
        case bool():
            return Scalar.BOOL
        case int():
            return Scalar.INT
        case float():
            return Scalar.DOUBLE
        case str():
            return Scalar.STRING
        case _:
            return Other.LIST


def is_output(type: Type) -> bool:
    """Whether values of this type can be an output with dimensions."""
    return type is Other.UNKNOWN or isinstance(type, ListType)


def check_elements(name: str, shape: tuple[int, ...]) -> None:
    """Raises ExpressionError if an output of this shape is too large for an expression."""
    if (count := math.prod(shape)) > MAX_ELEMENTS:
        raise ExpressionError(f"output {name} has {count} elements; expressions read outputs of at most {MAX_ELEMENTS}")


# Operators


@dataclass(frozen=True)
class Overload:
    """What an operator does with operands of certain types."""

    result: Scalar
    apply: Callable[..., bool | int | float | str]


def _in_64_bits(exact: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(left: int, right: int) -> int:
        result = exact(left, right)
        if result not in _INT64:
            raise ExpressionError("an integer becomes larger than 64 bits with sign can hold")
        return result

    return checked


def _quotient(left: int, right: int) -> int:
    """Rounded towards zero."""
    if right == 0:
        raise ExpressionError("an integer is divided by 0")
    magnitude = abs(left) // abs(right)
    return magnitude if (left < 0) == (right < 0) else -magnitude


def _remainder(left: int, right: int) -> int:
    """With the sign of the left operand."""
    return left - right * _quotient(left, right)


def _ratio(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)


def _as_int(number: float) -> int:
    if not math.isfinite(number) or int(number) not in _INT64:
        raise ExpressionError(f"{number} is no integer of 64 bits with sign")
    return int(number)


_NUMBERS: Final = (Scalar.INT, Scalar.DOUBLE)
_COMPARED: Final = (*product(_NUMBERS, _NUMBERS), (Scalar.STRING, Scalar.STRING), (Scalar.BOOL, Scalar.BOOL))
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_TEXTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "contains": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
}

OVERLOADS: Final[Mapping[tuple[str, tuple[Type, ...]], Overload]] = {
    **{(op, pair): Overload(Scalar.BOOL, apply) for op, apply in _COMPARISONS.items() for pair in _COMPARED},
    **{(name, (Scalar.STRING, Scalar.STRING)): Overload(Scalar.BOOL, apply) for name, apply in _TEXTS.items()},
    ("+", (Scalar.INT, Scalar.INT)): Overload(Scalar.INT, _in_64_bits(lambda left, right: left + right)),
    ("-", (Scalar.INT, Scalar.INT)): Overload(Scalar.INT, _in_64_bits(lambda left, right: left - right)),
    ("*", (Scalar.INT, Scalar.INT)): Overload(Scalar.INT, _in_64_bits(lambda left, right: left * right)),
    ("/", (Scalar.INT, Scalar.INT)): Overload(Scalar.INT, _in_64_bits(_quotient)),
    ("%", (Scalar.INT, Scalar.INT)): Overload(Scalar.INT, _in_64_bits(_remainder)),
    ("+", (Scalar.DOUBLE, Scalar.DOUBLE)): Overload(Scalar.DOUBLE, lambda left, right: left + right),
    ("-", (Scalar.DOUBLE, Scalar.DOUBLE)): Overload(Scalar.DOUBLE, lambda left, right: left - right),
    ("*", (Scalar.DOUBLE, Scalar.DOUBLE)): Overload(Scalar.DOUBLE, lambda left, right: left * right),
    ("/", (Scalar.DOUBLE, Scalar.DOUBLE)): Overload(Scalar.DOUBLE, _ratio),
    ("-", (Scalar.INT,)): Overload(Scalar.INT, lambda number: _in_64_bits(lambda zero, n: zero - n)(0, number)),
    ("-", (Scalar.DOUBLE,)): Overload(Scalar.DOUBLE, lambda number: -number),
    ("!", (Scalar.BOOL,)): Overload(Scalar.BOOL, lambda value: not value),
    ("double", (Scalar.INT,)): Overload(Scalar.DOUBLE, float),
    ("double", (Scalar.DOUBLE,)): Overload(Scalar.DOUBLE, float),
    ("int", (Scalar.INT,)): Overload(Scalar.INT, int),
    ("int", (Scalar.DOUBLE,)): Overload(Scalar.INT, _as_int),
    ("size", (Scalar.STRING,)): Overload(Scalar.INT, len),
}
"""By operator or function, and the types of its operands."""


def equal(left: Value, right: Value) -> bool:
    """Whether two single values are equal; those of different types are not, but numbers of any type are compared."""
    if isinstance(left, bool) != isinstance(right, bool) or isinstance(left, str) != isinstance(right, str):
        return False
    return left == right


def has_element(tensor: Tensor, expected: Value) -> bool:
    """Whether a tensor of one dimension has an element that is equal to a single value."""
    elements: list[Any] = tensor.tolist()
    if not elements:
        return False
    if isinstance(elements[0], bytes):
        return isinstance(expected, str) and expected.encode(errors="replace") in elements
    return equal(elements[0], expected) or (
        isinstance(elements[0], bool) == isinstance(expected, bool) and expected in elements
    )


def type_error(operator: str, types: tuple[Type, ...]) -> ExpressionError:
    """That an operator does not take operands of these types."""
    given = " and ".join(str(type) for type in types)
    hint = "; convert one of them with int() or double()" if {*types} == {*_NUMBERS} else ""
    return ExpressionError(f"{operator} does not take {given}{hint}")
