"""Stages compute with one thread: their tensors are small, and other tests want the cores too."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
