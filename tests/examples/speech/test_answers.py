"""The whole example `speech` in this process finds speech where its package does."""

import functools
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from speech.audio import RATE, Samples, recording
from speech.comparison import ALLOWED, Comparison, package_result, served_result
from speech.models import detector
from speech.stream import CHUNK
from tests.examples.test_manifests import read

from partita_runtime.load.reference import WholeModels


@functools.cache
def session() -> WholeModels:
    (session,) = read("speech").sessions
    return WholeModels(session.spec)


def ask(tensors: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    return session().answer({name: tensor[0] for name, tensor in tensors.items()})


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(recording(), id="voices, hum, hiss"),
        pytest.param(recording(2), id="others"),
        pytest.param(recording()[: 3 * RATE], id="ends in speech"),
        pytest.param(recording()[: 2 * CHUNK], id="whole chunks"),
        pytest.param(recording()[2 * RATE : 2 * RATE + 1000], id="less than two windows"),
        pytest.param(np.full(CHUNK, -32768, np.int16), id="the least number"),
    ],
)
def test_speech_is_where_the_package_finds_it(samples: Samples) -> None:
    comparison = Comparison(served_result(ask, samples), package_result(samples))

    assert comparison.is_equal, (comparison.served, comparison.package)
    assert comparison.difference < 1e-4


def test_voices_are_found_and_hum_and_hiss_are_not() -> None:
    """So that the comparison is not one of two empty results."""
    found = [(start / RATE, end / RATE) for start, end in package_result(recording()).segments]

    assert found == [
        (pytest.approx(1.0, abs=0.15), pytest.approx(3.1, abs=0.15)),
        (pytest.approx(4.1, abs=0.15), pytest.approx(5.7, abs=0.15)),
        (pytest.approx(10.5, abs=0.15), pytest.approx(11.2, abs=0.15)),
    ]


@torch.no_grad()
def test_streams_of_a_batch_do_not_mix() -> None:
    model = detector()
    generator = torch.Generator().manual_seed(0)
    windows = 0.3 * torch.randn(3, 32, 576, generator=generator)
    states = 0.5 * torch.randn(3, 2, 128, generator=generator)

    together = model(windows, states)

    for i in range(3):
        alone = model(windows[i : i + 1], states[i : i + 1])
        for name in ("probabilities", "state"):
            torch.testing.assert_close(together[name][i], alone[name][0], atol=ALLOWED / 100, rtol=1e-4)
