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


def identity() -> nn.Module:
    """[batch, 4] to the same, in four layers."""
    layers = [nn.Linear(4, 4, bias=False) for _ in range(4)]
    for layer in layers:
        nn.init.eye_(layer.weight)
    return nn.Sequential(*layers).eval()
