"""Tiny models of the sessions under test."""

import torch
from torch import nn


def convolutional(seed: int = 0) -> nn.Module:
    """[batch, 3, 16, 16] to ten logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(256, 10),
        ).eval()


def columns(seed: int = 0) -> nn.Module:
    """[batch, 2, width] to [batch, 1, width], for any width: a column's answer depends on the columns beside it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv1d(2, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv1d(4, 1, 1),
        ).eval()


class MaskedMean(nn.Module):
    """The mean of the vectors of those ids that a mask has: [batch, n] twice, to [batch, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(100, 3)
        self.last = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(3, 3), nn.ReLU())), nn.Linear(3, 3))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The answer for each sample."""
        weights = mask.unsqueeze(-1).float()
        mean: torch.Tensor = self.last((self.vectors(ids) * weights).sum(1) / weights.sum(1))
        return mean


def masked_mean(seed: int = 0) -> nn.Module:
    """A model whose answer does not depend on padding, if the mask has none of it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MaskedMean().eval()


def identity() -> nn.Module:
    """[batch, 4] to the same, in four layers."""
    layers = [nn.Linear(4, 4, bias=False) for _ in range(4)]
    for layer in layers:
        nn.init.eye_(layer.weight)
    return nn.Sequential(*layers).eval()
