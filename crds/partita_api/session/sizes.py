"""The sizes of samples that a module takes: fields and rules of its size classes."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from pydantic import Field

from partita_api.fields.number import SignedNumber
from partita_api.fields.quantity import Percent
from partita_api.meta import Rule, SpecModel

_ELEMENTS: Final = {
    "FP16": (-65_504, 65_504),
    **{f"INT{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    **{f"UINT{bits}": (0, 2**bits - 1) for bits in (8, 16, 32)},
    "UINT64": (0, 10**15),
    "BOOL": (0, 1),
}
"""The least and the largest number of element types that do not hold every number that a spec can have."""
_FLOATS: Final = ("FP16", "FP32", "FP64")

_VARIES: Final = (
    "((has(self.input) && has(self.input.variableDimension)) || "
    "(has(self.inputs) && self.inputs.exists(i, has(i.variableDimension))))"
)
_PERCENT: Final = "double(s.share.replace('%', ''))"


def _is_element(padding: SignedNumber, dtype: str) -> bool:
    least, most = _ELEMENTS.get(dtype, (-(10**15), 10**15))
    whole = dtype in _FLOATS or padding.value == int(padding.value)
    return dtype != "BYTES" and whole and least <= padding.value <= most


def _cel_is_element() -> str:
    """`_is_element` in CEL."""
    padding, dtype = "string(self.padding)", "(has(self.dtype) ? self.dtype : 'FP32')"
    limits = [
        f"({dtype} != '{name}' || (quantity({padding}).compareTo(quantity('{least}')) >= 0 && "
        f"quantity({padding}).compareTo(quantity('{most}')) <= 0))"
        for name, (least, most) in _ELEMENTS.items()
    ]
    whole = f"({dtype} in {[*_FLOATS]} || {padding}.matches('^-?[0-9]+([.]0+)?$'))"
    holds = " && ".join([f"{dtype} != 'BYTES'", whole, *limits])
    return f"!has(self.padding) || !isQuantity({padding}) || ({holds})"


PADDING_IS_AN_ELEMENT: Final = Rule(
    "padding must be a number that an element of dtype can hold",
    lambda tensor: tensor.padding is None or _is_element(tensor.padding, tensor.dtype),
    _cel_is_element(),
)
"""A rule of a tensor."""


class Size(SpecModel):
    """A size class of a module."""

    size: int = Field(
        ge=1,
        le=1_048_576,
        description="The largest size of a sample in the variable dimension. Smaller samples are padded to it.",
    )
    share: Percent | None = Field(
        default=None,
        json_schema_extra={"maxLength": 9},
        description='Expected share of the module\'s samples, such as "30%". Default: all classes have the same.',
    )


def declared_shares(sizes: Sequence[Size]) -> tuple[Percent, ...]:
    """The expected share of each size class; the same of all if none is declared."""
    equal = Percent(f"{round(Decimal(100) / max(len(sizes), 1), 4).normalize():f}%")
    return tuple(equal if size.share is None else size.share for size in sizes)


def class_name(module: str, size: int) -> str:
    """The name of a size class as a module of plans."""
    return f"{module}-s{size}"


def _varying(module: Any) -> list[Any]:
    """The inputs of which one dimension varies."""
    inputs = [tensor for tensor in (module.input, *(module.inputs or ())) if tensor is not None]
    return [tensor for tensor in inputs if tensor.variable_dimension is not None]


def _sizes_increase(module: Any) -> bool:
    sizes = [size.size for size in module.sizes]
    largest = {tensor.shape[tensor.variable_dimension] for tensor in _varying(module)}
    return all(a < b for a, b in pairwise(sizes)) and largest <= {sizes[-1]}


def _cel_ends(tensor: str) -> str:
    """In CEL: the largest size class is as large as a tensor in the dimension that varies, if one does."""
    return (
        f"(!has({tensor}.variableDimension) || {tensor}.variableDimension >= size({tensor}.shape) || "
        f"self.sizes[size(self.sizes) - 1].size == {tensor}.shape[{tensor}.variableDimension])"
    )


def _shares_add_up(sizes: tuple[Size, ...]) -> bool:
    shares = [Decimal(size.share.removesuffix("%")) for size in sizes if size.share is not None]
    return not shares or (len(shares) == len(sizes) and sum(shares) == 100 and min(shares) > 0)


SIZE_RULES: Final = (
    Rule(
        "sizeStep rounds the sizes of batches between those of sizes, and needs sizes",
        lambda module: module.size_step is None or module.sizes is not None,
        "!has(self.sizeStep) || has(self.sizes)",
    ),
    Rule(
        "a model whose input has a variableDimension needs sizes, and sizes need such a model",
        lambda module: (module.model is not None and bool(_varying(module))) == (module.sizes is not None),
        f"(has(self.model) && {_VARIES}) == has(self.sizes)",
    ),
    Rule(
        "sizes must increase, and end with the size of input.shape in its variableDimension; several inputs that vary "
        "have the same size there",
        lambda module: module.sizes is None or _sizes_increase(module),
        "!has(self.sizes) || (self.sizes.map(s, s.size).isSorted() && "
        "self.sizes.all(s, self.sizes.exists_one(t, t.size == s.size)) && "
        f"(!has(self.input) || {_cel_ends('self.input')}) && "
        f"(!has(self.inputs) || self.inputs.all(i, {_cel_ends('i')})))",
    ),
    Rule(
        "inputs of a function have one size; declare variableDimension in input",
        lambda module: module.model is not None or module.inputs is None or not _varying(module),
        "has(self.model) || !has(self.inputs) || self.inputs.all(i, !has(i.variableDimension))",
    ),
    Rule(
        "the shares of sizes must be above 0% and add up to 100%; give all of them, or none",
        lambda module: module.sizes is None or _shares_add_up(module.sizes),
        "!has(self.sizes) || self.sizes.all(s, !has(s.share)) || (self.sizes.all(s, has(s.share)) && "
        f"self.sizes.all(s, {_PERCENT} > 0.0) && self.sizes.map(s, {_PERCENT}).sum() > 99.99999 && "
        f"self.sizes.map(s, {_PERCENT}).sum() < 100.00001)",
    ),
)
"""Rules of a module."""


def _class_names(spec: Any) -> list[str]:
    return [class_name(module.name, size.size) for module in spec.modules for size in module.sizes or ()]


def _is_class_name(name: str, module: str) -> bool:
    return re.fullmatch(f"{re.escape(module)}-s[0-9]+", name) is not None


def _differ_from_modules(spec: Any) -> bool:
    sized = [module.name for module in spec.modules if module.sizes is not None]
    return not any(_is_class_name(module.name, other) for module in spec.modules for other in sized)


def size_class_rules(most_modules: int, longest_name: int) -> tuple[Rule, ...]:
    """Rules of a session, of at most so many modules with names of at most so many characters."""
    return (
        Rule(
            f"a session has at most {most_modules} modules, and each size class counts as one; remove modules or sizes",
            lambda spec: sum(len(module.sizes or (1,)) for module in spec.modules) <= most_modules,
            f"self.modules.map(m, has(m.sizes) ? size(m.sizes) : 1).sum() <= {most_modules}",
        ),
        Rule(
            f"a size class is the module NAME-sSIZE, whose name has at most {longest_name} characters; use a shorter "
            "name for the module",
            lambda spec: all(len(name) <= longest_name for name in _class_names(spec)),
            "self.modules.all(m, !has(m.sizes) || m.sizes.all(s, "
            f"size(m.name) + 2 + size(string(s.size)) <= {longest_name}))",
        ),
        Rule(
            "a size class is the module NAME-sSIZE, so no other module may have such a name; rename one of them",
            _differ_from_modules,
            "self.modules.all(m, !has(m.sizes) || !self.modules.exists(n, n.name.startsWith(m.name + '-s') && "
            "n.name.substring(size(m.name) + 2).matches('^[0-9]+$')))",
        ),
    )
