"""Files of torch.export are read as torch reads them, for the operators and shapes of common models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.models.architectures import lively
from torch.export import Dim
from torch.utils import _pytree as pytree

from partita_runtime.models.exported.reading import read_exported

BATCH = Dim("batch", min=1, max=64)


class AnyOf(torch.nn.Module):
    """Branches on its data, and multiplies by a number that depends on them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = (x > 0).nonzero()
        branch: torch.Tensor = torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))
        return branch * found.shape[0]


class HalfInside(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            product = x @ x.transpose(-1, -2)
        return product.float()


class AllSizes(torch.nn.Module):
    """Shapes are expressions with divisions and powers of three sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.pool = torch.nn.MaxPool2d(2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small = self.pool(self.convolution(x))
        numbers = torch.arange(x.shape[0] * x.shape[0] // 2 + 1)
        return small.flatten(1), numbers, torch.nn.functional.interpolate(x, scale_factor=2)


class Tied(torch.nn.Module):
    """Parameters that share memory, one of them as a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.row = torch.nn.Parameter(self.first.weight.detach()[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) + self.row


def with_tensors_only(name: str) -> torch.nn.Module:
    """An architecture whose answer is a dictionary of Python's own type."""

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = lively(name)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {key: value for key, value in self.model(x).items() if isinstance(value, torch.Tensor)}

    return Plain()


def memories(program: torch.export.ExportedProgram) -> int:
    """How many pieces of memory the weights are in."""
    return len({tensor.untyped_storage().data_ptr() for tensor in program.state_dict.values()})


IMAGES = torch.linspace(-1, 1, 2 * 3 * 64 * 64).reshape(2, 3, 64, 64)


@pytest.mark.parametrize(
    ("make", "example", "sizes"),
    [
        pytest.param(lambda: with_tensors_only("resnet"), IMAGES, {0: BATCH}, id="resnet"),
        pytest.param(lambda: with_tensors_only("detr"), IMAGES, {0: BATCH}, id="detr"),
        pytest.param(lambda: with_tensors_only("mobilevit"), IMAGES, {0: BATCH}, id="mobilevit"),
        pytest.param(AnyOf, torch.tensor([[1.0, -2.0], [3.0, 4.0]]), {0: BATCH}, id="depends on data"),
        pytest.param(HalfInside, torch.ones(2, 3, 4), {0: BATCH}, id="other precision inside"),
        pytest.param(Tied, torch.ones(2, 4), {0: BATCH}, id="tied weights"),
        pytest.param(
            AllSizes,
            IMAGES,
            {0: BATCH, 2: Dim("height", min=16, max=256), 3: Dim("width", min=16, max=256)},
            id="three dynamic sizes",
        ),
    ],
)
def test_a_file_is_read_as_by_torch(
    make: Callable[[], torch.nn.Module], example: torch.Tensor, sizes: dict[int, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(make().eval(), (example,), dynamic_shapes=(sizes,)), path)

    found, want = read_exported(path), torch.export.load(path)

    for batch in (example, torch.cat([example, example])):
        answers, expected = (program.module(check_guards=False)(batch) for program in (found, want))
        assert pytree.tree_structure(answers) == pytree.tree_structure(expected)
        assert all(map(torch.equal, pytree.tree_leaves(answers), pytree.tree_leaves(expected)))
    assert list(found.state_dict) == list(want.state_dict)
    assert memories(found) == memories(want)
    assert found.range_constraints == want.range_constraints
