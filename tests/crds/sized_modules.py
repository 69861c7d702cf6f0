"""Modules of variable size: what the rules refuse and what they let pass."""

from typing import Any

import pytest
from tests.crds.documents import CROP, DETECTOR, SESSION, Json, changed

INPUT: Json = {"shape": [3, 32, 32], "variableDimension": 2}
SIZED: Json = {**DETECTOR, "input": INPUT, "sizes": [{"size": 16}, {"size": 32}]}


def sized(*sizes: int, name: str = "detector", shares: tuple[str | None, ...] = ()) -> Json:
    """A module with these size classes."""
    given = [{"size": size} | ({"share": share} if share else {}) for size, share in zip(sizes, shares, strict=False)]
    shape = [3, 32, sizes[-1]]
    return {**SIZED, "name": name, "input": {**INPUT, "shape": shape}, "sizes": given or [{"size": s} for s in sizes]}


def padded_with(padding: Any, dtype: str = "FP32") -> Json:
    """A module whose samples are filled up with this value."""
    return {**SIZED, "input": {**INPUT, "dtype": dtype, "padding": padding}}


IDS: Json = {"name": "ids", "shape": [32], "dtype": "INT64", "variableDimension": 0, "padding": 1}
MASK: Json = {"name": "mask", "shape": [1, 32], "dtype": "INT64", "variableDimension": 1}
LANGUAGE: Json = {"name": "language", "shape": [1], "dtype": "INT64"}


def several(*inputs: Json) -> Json:
    """A module with size classes of several inputs."""
    return {"name": "detector", "model": DETECTOR["model"], "inputs": [*inputs], "sizes": SIZED["sizes"]}


def refused(module: Json, want: str, id: str) -> Any:
    return pytest.param(SESSION, "spec.modules.0", module, want, id=id)


NO_EDGES = changed(SESSION, "spec.edges", [])
LONG_NAME = "a" * 36

REFUSED = [
    refused({**SIZED, "input": {**INPUT, "variableDimension": 3}}, "index of a dimension", "dimension 3 of 3"),
    refused({**DETECTOR, "input": {"shape": [3], "padding": 1}}, "padding fills up samples", "padding of a fixed size"),
    refused(padded_with("0.5", "INT64"), "an element of dtype can hold", "half a token"),
    refused(padded_with(256, "UINT8"), "an element of dtype can hold", "256 in a byte"),
    refused(padded_with(-1, "UINT8"), "an element of dtype can hold", "-1 in a byte"),
    refused(padded_with("65504.5", "FP16"), "an element of dtype can hold", "more than half precision has"),
    refused(padded_with(-1, "UINT64"), "an element of dtype can hold", "-1 in 64 bits without a sign"),
    refused(padded_with(2**31, "INT32"), "an element of dtype can hold", "more than 32 bits have"),
    refused({**DETECTOR, "input": INPUT}, "needs sizes, and sizes need such a model", "variable size without classes"),
    refused({**SIZED, "input": DETECTOR["input"]}, "needs sizes, and sizes need such a model", "classes of one size"),
    pytest.param(
        SESSION,
        "spec.modules.1",
        {**CROP, "input": INPUT, "sizes": SIZED["sizes"]},
        "needs sizes, and sizes need such a model",
        id="classes of a function",
    ),
    refused({**DETECTOR, "sizeStep": 8}, "needs sizes", "a step without classes"),
    refused(sized(16, 8, 32), "sizes must increase", "sizes in disorder"),
    refused(sized(16, 16, 32), "sizes must increase", "a size twice"),
    refused({**SIZED, "sizes": [{"size": 8}, {"size": 16}]}, "end with the size of input.shape", "too small a class"),
    refused(several(IDS, {**MASK, "shape": [1, 31]}), "have the same size there", "inputs of two sizes"),
    refused(
        several({**IDS, "shape": [64]}, {**MASK, "shape": [1, 64]}), "end with the size", "inputs above all classes"
    ),
    refused(several(LANGUAGE), "needs sizes, and sizes need such a model", "classes of inputs of one size"),
    refused(
        {name: value for name, value in several(IDS, MASK).items() if name != "sizes"},
        "needs sizes, and sizes need such a model",
        "inputs of any size without classes",
    ),
    refused(several(IDS, {**MASK, "variableDimension": 2}), "index of a dimension", "dimension 2 of 2 of an input"),
    pytest.param(
        SESSION,
        "spec.modules.1",
        {**CROP, "inputs": [IDS]},
        "inputs of a function have one size",
        id="inputs of any size of a function",
    ),
    refused(sized(16, 32, shares=("30%", None)), "add up to 100%", "a share without the other"),
    refused(sized(16, 32, shares=("30%", "69.9%")), "add up to 100%", "shares of less than all"),
    refused(sized(8, 16, 32, shares=("30%", "70%", "0%")), "must be above 0%", "a class without samples"),
    refused(
        {**sized(1, 3), "image": {"layout": "HWC"}},
        "the width or the height may vary",
        "any number of channels",
    ),
    pytest.param(
        NO_EDGES,
        "spec.modules",
        [sized(*range(1, 9), name=f"m{number}") for number in range(4)] + [CROP],
        "each size class counts as one",
        id="33 modules with classes",
    ),
    pytest.param(
        NO_EDGES, "spec.modules", [sized(16, 100, name=LONG_NAME)], "has at most 40 characters", id="a long name"
    ),
    pytest.param(
        NO_EDGES,
        "spec.modules",
        [SIZED, {**DETECTOR, "name": "detector-s16"}],
        "no other module may have such a name",
        id="a module with the name of a class",
    ),
]

ACCEPTED = [
    pytest.param(SESSION, "spec.modules.0", SIZED, id="size classes"),
    pytest.param(SESSION, "spec.modules.0", sized(8, 16, 32, shares=("33.33%", "33.33%", "33.34%")), id="shares"),
    pytest.param(SESSION, "spec.modules.0", several(IDS, MASK, LANGUAGE), id="several inputs of any size"),
    pytest.param(SESSION, "spec.modules.0", padded_with("-2.118"), id="padding"),
    pytest.param(SESSION, "spec.modules.0", {**SIZED, "image": {}}, id="images of any width"),
    pytest.param(SESSION, "spec.modules.0", padded_with(-100, "INT64"), id="padding of tokens"),
    pytest.param(SESSION, "spec.modules.0", padded_with("65504.0", "FP16"), id="padding in half precision"),
    pytest.param(SESSION, "spec.modules.1", {**CROP, "input": INPUT}, id="a function of variable size"),
    pytest.param(NO_EDGES, "spec.modules", [sized(*range(1, 9), name=f"m{n}") for n in range(4)], id="32 classes"),
    pytest.param(NO_EDGES, "spec.modules", [SIZED, {**DETECTOR, "name": "detector-small-s16"}], id="another name"),
    pytest.param(NO_EDGES, "spec.modules", [sized(16, 99, name=LONG_NAME)], id="the longest name of a class"),
]
