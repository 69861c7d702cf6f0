"""Models of the sessions that the end-to-end tests serve."""

from itertools import pairwise
from typing import Any

import torch
from tests.e2e.functions import CROP
from torch import Tensor, nn


def detector() -> nn.Module:
    """[batch, 3, 32, 32] to four scores, in nine layers."""
    return _seeded(
        1, lambda: nn.Sequential(*_convolutions(3, 8, 8, 8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    )


def classifier() -> nn.Module:
    """[batch, 3, 16, 16] to five logits."""
    return _seeded(2, lambda: nn.Sequential(*_convolutions(3, 8, 4), nn.Flatten(), nn.Linear(4 * CROP * CROP, 5)))


def not_a_number() -> nn.Module:
    """A model whose answer is NaN."""

    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 0 / (x * 0)).flatten(1)

    return Broken()


def branching() -> nn.Module:
    """A detector that looks at its numbers to decide what to run, which no exporter can follow."""

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.detector = detector()

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.detector(x)
            return scores if scores.sum() > 0 else -scores

    return Branching().eval()


def _convolutions(*channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for into, out in pairwise(channels):
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.ReLU()]
    return layers


def _seeded(seed: int, make: Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = make()
    return model.eval()
