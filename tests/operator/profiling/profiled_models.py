"""Models that profiling runs import by name."""

import time

from torch import nn


def small() -> nn.Module:
    """A model that is profiled quickly."""
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()


def hangs() -> nn.Module:
    """Never returns a model."""
    print("loading weights", flush=True)
    while True:
        time.sleep(1)
