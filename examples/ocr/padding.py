"""Rewrites a convolutional ONNX network so that padding on the right and at the bottom of its input changes nothing.

A network sees padding in two ways: convolutions near the border of the picture read it, and averages over the whole
input (squeeze and excitation) and attention count it. The rewritten network recognizes padding by a value that no pixel
has. In front of each convolution it sets padding to zero, as if the input ended there. It leaves it out of averages
and of attention.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

PADDING: Final = -4.0
"""The value of padding. Those of pixels are from -1 to 1."""

_MASK: Final = "padding/mask"


def indifferent_to_padding(model: ModelProto) -> tuple[ModelProto, str]:
    """The rewritten network, and the name of its last mask: 1 for values of pixels, 0 for those of padding only.

    For an input of pixels without padding it answers like the original one. Its answers for padding have no meaning.
    """
    rewriting = _Rewriting(model)
    rewritten = ModelProto()
    rewritten.CopyFrom(model)
    del rewritten.graph.node[:]
    rewritten.graph.node.extend(rewriting.nodes())
    rewritten.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, np.float32), name) for name, value in _CONSTANTS.items()
    )
    return rewritten, rewriting.last_mask


_CONSTANTS: Final = {"padding/least_pixel": PADDING / 2, "padding/one": 1.0, "padding/never": 1e9}


class _Rewriting:
    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._masks: dict[str, str] = {}
        """The mask `[batch, 1, height, width]` of each value `[batch, channels, height, width]`."""
        self._made: set[str] = set()
        self._relus = {output for node in model.graph.node if node.op_type == "Relu" for output in node.output}
        self.last_mask = _MASK

    def nodes(self) -> Iterator[NodeProto]:
        """The nodes of the rewritten network in order."""
        (entry,) = (value.name for value in self._model.graph.input)
        yield helper.make_node("ReduceMax", [entry], ["padding/largest"], axes=[1], keepdims=1)
        yield helper.make_node("Greater", ["padding/largest", "padding/least_pixel"], ["padding/is_pixel"])
        yield helper.make_node("Cast", ["padding/is_pixel"], [_MASK], to=1)
        self._masks[entry] = _MASK
        for node in self._model.graph.node:
            mask = next((self._masks[name] for name in node.input if name in self._masks), None)
            attributes = _attributes(node)
            if mask is None:
                yield from self._attention(node, attributes)
            elif node.op_type == "GlobalAveragePool" or (node.op_type == "ReduceMean" and attributes["axes"] == [2, 3]):
                yield from self._average(node, mask)
            elif node.op_type in ("Conv", "MaxPool", "AveragePool"):
                yield from self._window(node, mask, attributes)
            else:
                yield node
                yield from self._follow(node, mask)

    def _window(self, node: NodeProto, mask: str, attributes: Mapping[str, Any]) -> Iterator[NodeProto]:
        """A node that computes each value from the values around it."""
        if max(attributes["kernel_shape"]) == 1:
            yield node
        else:
            # The border of a maximum is below all numbers. It may be zero only if no number is below zero.
            assert node.op_type != "MaxPool" or self._origin(node.input[0]) in self._relus
            yield from self._without_padding(node, mask)
        height, width = attributes["strides"]
        if node.op_type == "AveragePool":  # it has no border, so it makes nothing of a window that is not full
            made = f"{mask}/full"
            yield from self._once(f"{made}/share", node.op_type, [mask], **attributes)
            yield from self._once(made, "Floor", [f"{made}/share"])
        elif (height, width) == (1, 1):
            made = mask
        else:
            made = f"{mask}/{height}x{width}"
            yield from self._once(made, "MaxPool", [mask], kernel_shape=[1, 1], strides=[height, width])
        self._masks[node.output[0]] = self.last_mask = made

    def _average(self, node: NodeProto, mask: str) -> Iterator[NodeProto]:
        """The mean over height and width, of pixels only."""
        (output,) = node.output
        yield from self._once(f"{mask}/mean", "ReduceMean", [mask], axes=[2, 3], keepdims=1)
        averaged = NodeProto()
        averaged.CopyFrom(node)
        averaged.output[0] = f"{output}/padding"
        yield from self._without_padding(averaged, mask)
        yield helper.make_node("Div", [averaged.output[0], f"{mask}/mean"], [output])

    def _attention(self, node: NodeProto, attributes: Mapping[str, Any]) -> Iterator[NodeProto]:
        """Attention `[batch, heads, positions, positions]` gives no weight to padding; other nodes stay as they are."""
        if node.op_type == "Softmax" and attributes["axis"] == 3:
            bias = f"{self.last_mask}/bias"
            yield from self._once(f"{bias}/negative", "Sub", [self.last_mask, "padding/one"])
            yield from self._once(bias, "Mul", [f"{bias}/negative", "padding/never"])
            yield helper.make_node("Add", [node.input[0], bias], [f"{node.output[0]}/weights"])
            yield _with_input(node, f"{node.output[0]}/weights")
        else:
            yield node

    def _follow(self, node: NodeProto, mask: str) -> Iterator[NodeProto]:
        """Note the mask of what a node makes of values with a mask."""
        match node.op_type:
            case "Resize":
                made = f"{node.output[0]}/mask"
                yield _with_input(helper.make_node("Resize", node.input, [made], **_attributes(node)), mask)
            case "ConvTranspose" | "Shape" | "Reshape":
                return  # at the end of the networks, behind the last convolution
            case _:
                made = mask
        for output in node.output:
            self._masks[output] = made

    def _without_padding(self, node: NodeProto, mask: str) -> Iterator[NodeProto]:
        """The node, with zeros for the padding in its input."""
        masked = f"{node.output[0]}/pixels"
        yield helper.make_node("Mul", [node.input[0], mask], [masked])
        yield _with_input(node, masked)

    def _once(self, output: str, operator: str, inputs: list[str], **attributes: Any) -> Iterator[NodeProto]:
        """A node that several need, the first time."""
        if output not in self._made:
            self._made.add(output)
            yield helper.make_node(operator, inputs, [output], **attributes)

    def _origin(self, name: str) -> str:
        """The value that this one is a copy of."""
        copied = {node.output[0]: node.input[0] for node in self._model.graph.node if node.op_type == "Identity"}
        while name in copied:
            name = copied[name]
        return name


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _with_input(node: NodeProto, name: str) -> NodeProto:
    """The node with another first input."""
    other = NodeProto()
    other.CopyFrom(node)
    other.input[0] = name
    return other
