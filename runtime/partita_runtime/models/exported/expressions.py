"""The expressions of dynamic shapes that a .pt2 file may contain.

torch evaluates them as Python code, with all functions of sympy in reach, and expands products of sums. Allowed is what
torch writes: calls of the functions below on symbols and small integers, with few terms after the expansion.
"""

import ast
import re
from math import prod
from typing import Final

from partita_runtime.models.exported.errors import ForbiddenContentError

SYMBOL: Final = re.compile(r"(s|u|zf|zuf)[0-9]{1,5}", re.ASCII)
"""Names of sizes and of values that depend on data, as torch gives them."""
LONGEST: Final = 2_000
"""Characters of an expression; those of common models have up to 300."""
MOST_TERMS: Final = 100
"""Terms of an expression after its products are expanded."""
_LARGEST_INTEGER: Final = 2**63
_POWERS: Final = range(-1, 9)
_FUNCTIONS: Final = frozenset(
    {
        *("Add", "Mul", "Max", "Min", "And", "Or", "Not"),
        *("Equality", "Unequality", "LessThan", "StrictLessThan", "GreaterThan", "StrictGreaterThan"),
        *("FloorDiv", "CeilDiv", "CleanDiv", "IntTrueDiv", "FloatTrueDiv", "Mod", "PythonMod", "ModularIndexing"),
        *("CeilToInt", "FloorToInt", "RoundToInt", "TruncToInt", "TruncToFloat", "ToFloat", "Where", "Identity"),
    }
)
_POWER: Final = ("Pow", "PowByNatural")
_CONSTANTS: Final = frozenset({"true", "false"})
_ASSUMPTIONS: Final = frozenset({"integer", "positive", "negative", "nonnegative", "zero", "real", "finite"})


def check_expression(text: str) -> None:
    """Raises ForbiddenContentError unless the expression is of the form that torch writes."""
    if len(text) > LONGEST:
        raise ForbiddenContentError(f"an expression of {len(text)} characters")
    try:
        _terms(ast.parse(text, mode="eval").body, text, inside_power=False)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ForbiddenContentError(f"the expression {text[:200]!r}") from error


def _terms(node: ast.expr, text: str, *, inside_power: bool) -> int:
    """How many terms an allowed part has after its expansion. Raises ForbiddenContentError."""
    terms = 0
    match node:
        case ast.Name(id=name) if name in _CONSTANTS:
            terms = 1
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=assumptions):
            terms = 1 if SYMBOL.fullmatch(name) and all(map(_is_assumption, assumptions)) else 0
        case ast.Call(func=ast.Name(id="Integer"), args=[value], keywords=[]) if _integer(value) is not None:
            terms = 1
        case ast.Call(func=ast.Name(id=name), args=[base, exponent], keywords=[]) if name in _POWER:
            power = _power(exponent)
            if not inside_power and power in _POWERS:
                terms = _terms(base, text, inside_power=True) ** abs(power)
        case ast.Call(func=ast.Name(id=name), args=operands, keywords=[]) if name in _FUNCTIONS:
            counts = [_terms(operand, text, inside_power=inside_power) for operand in operands]
            terms = prod(counts) if name == "Mul" else max(sum(counts), 1)
    if not 0 < terms <= MOST_TERMS:
        raise ForbiddenContentError(f"{ast.get_source_segment(text, node)!r:.200} in the expression {text!r:.200}")
    return terms


def _is_assumption(keyword: ast.keyword) -> bool:
    return (
        keyword.arg in _ASSUMPTIONS
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, bool)
    )


def _integer(node: ast.expr) -> int | None:
    """The value of a small integer, or None."""
    match node:
        case ast.Constant(value=int(value)) if abs(value) < _LARGEST_INTEGER:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if abs(value) < _LARGEST_INTEGER:
            return -value
    return None


def _power(node: ast.expr) -> int:
    """The value of a small exponent, or a number that is not one."""
    match node:
        case ast.Call(func=ast.Name(id="Integer"), args=[value], keywords=[]):
            found = _integer(value)
            return found if found is not None else _POWERS.stop
    return _POWERS.stop
