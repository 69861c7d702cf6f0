"""Captured graphs: they answer like the model, and none of their operations changes an operand."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.models.capture import CapturedGraph, export_graph, traced_graph

SPEC = TensorSpec(shape=(4, 8, 8))


class Computed(nn.Module):
    """A convolution with a norm, and what a function makes of its answer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.first(x))


def shared(x: Tensor) -> Tensor:
    before = x * 2
    return before.relu_() + before


def through_a_view(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    flat.relu_()
    return x


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.relu_(), id="an activation after a norm"),
        pytest.param(lambda x: nn.functional.hardtanh(x, 0.0, 6.0, inplace=True), id="an activation with arguments"),
        pytest.param(lambda x: x.add_(1.0), id="a sum"),
        pytest.param(lambda x: (x * 2).relu_().mul_(3.0), id="two, one after the other"),
        pytest.param(lambda x: nn.functional.dropout(x.mean(2), training=False, inplace=True), id="a dropout"),
        pytest.param(lambda x: x.zero_() + 1, id="an operation without a functional counterpart"),
        pytest.param(shared, id="a value that is used again"),
        pytest.param(through_a_view, id="a value behind a view"),
    ],
)
def test_operations_in_place_become_functional(function: Callable[[Tensor], Tensor]) -> None:
    model = Computed(function).eval()
    pixels = torch.randn(3, *SPEC.shape)

    graph = export_graph(model, SPEC)

    assert graph.functional
    changing = [
        node
        for node in graph.module.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    ]
    assert changing == []
    with torch.no_grad():
        torch.testing.assert_close(graph.module(pixels), model(pixels))


class Tables(nn.Module):
    """Selects rows of two tables by one input, and computes with the other one."""

    def __init__(self) -> None:
        super().__init__()
        self.many, self.few = nn.Embedding(9, 4), nn.Embedding(7, 4)

    def forward(self, numbers: Tensor, factors: Tensor) -> Tensor:
        return (self.many(numbers) + self.few(numbers.reshape(-1, 3).to(torch.int64))) * factors[..., None]


@pytest.mark.parametrize("capture", [export_graph, traced_graph])
def test_the_smallest_table_that_an_input_selects_from_is_its_vocabulary(
    capture: Callable[[nn.Module, tuple[NamedInput, ...]], CapturedGraph],
) -> None:
    inputs = tuple(NamedInput(name=name, shape=(3,), dtype=DType.INT32) for name in ("numbers", "factors"))
    model = Tables().eval()
    graph = capture(model, inputs)
    assert graph.vocabularies == (7, 0)
    with pytest.raises(IndexError):
        model(torch.full((1, 3), 7), torch.ones(1, 3))
