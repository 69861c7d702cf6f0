"""Times of blocks: measured, stretched, emulated, and beside co-tenants."""

import random
from itertools import pairwise

import pytest
import torch

from partita_api.profile import ProfileRequest, VgpuLatency
from partita_api.session.module import ModelSource, TensorSpec
from partita_profiling.emulation import emulated_latency
from partita_profiling.timing import (
    ENOUGH_REPEATS,
    LEAST_REPEATS,
    MOST_REPEATS,
    BlockTimer,
    spread,
    time_repeatedly,
)
from partita_profiling.vgpu import VgpuError, shares_gpus, time_divided
from partita_runtime.models.partitioned_model import partition_source

MODEL = ModelSource(entrypoint="tests.runtime.models.sample_models:residuals")
REQUEST = ProfileRequest(model=MODEL, input=TensorSpec(shape=(3, 32, 32)), blocks=3, batch_sizes=(1, 8, 32), pool="cpu")


def silent(line: str) -> None:
    assert line


def timer(request: ProfileRequest) -> BlockTimer:
    return BlockTimer(partition_source(request.model, request.input, request.blocks), request, torch.device("cpu"))


def totals(latency: VgpuLatency) -> list[float]:
    return [sum(column) for column in zip(*latency.median_micros, strict=True)]


def test_larger_batches_take_longer() -> None:
    latency = timer(REQUEST).time_all(1.0, silent)

    assert (len(latency.median_micros), len(latency.spread)) == (3, 3)
    assert all(a < b for a, b in pairwise(totals(latency)))
    assert all(micros > 0 for row in latency.median_micros for micros in row)


def test_slowdown_stretches_what_is_measured() -> None:
    plain = timer(REQUEST).time_all(1.0, silent)
    slowed = timer(REQUEST.model_copy(update={"slowdown": 50.0})).time_all(1.0, silent)

    assert totals(slowed)[-1] > 3 * totals(plain)[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_warning_of_all_blocks_is_there_once() -> None:
    (warning,) = timer(REQUEST.model_copy(update={"backend": "CudaGraphs"})).warnings

    assert "there is no CUDA device" in warning


def test_time_limit_leaves_the_least_number_of_repeats() -> None:
    timing = time_repeatedly(iter(range(100)).__next__, 0.0)

    assert timing.repeats == LEAST_REPEATS
    assert timing.median_micros == 2  # the warm-up's 0 is not counted


def test_steady_times_are_not_repeated_for_long() -> None:
    assert time_repeatedly(lambda: 5.0, 60.0).repeats == ENOUGH_REPEATS


def test_unsteady_times_are_repeated_for_long() -> None:
    unsteady = random.Random(1)

    timing = time_repeatedly(lambda: unsteady.uniform(1, 3), 60.0)

    assert timing.repeats == MOST_REPEATS
    assert 0.2 < timing.spread < 0.8


@pytest.mark.parametrize(
    ("times", "want"),
    [
        pytest.param([4.0], 0.0, id="one"),
        pytest.param([0.0, 0.0], 0.0, id="zero"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 3, id="even"),
        pytest.param([2.0, 2.0, 2.0, 2.0, 90.0], 0.0, id="an outlier"),
    ],
)
def test_spread_is_the_interquartile_range_over_the_median(times: list[float], want: float) -> None:
    assert spread(times) == pytest.approx(want)


@pytest.mark.parametrize(
    ("divisor", "want"),
    [
        pytest.param(1, ((7.5, 12.5), (22.5, 37.5)), id="whole"),
        pytest.param(2, ((12.5, 22.5), (37.5, 67.5)), id="half"),
    ],
)
def test_emulated_times_follow_the_curve_and_the_blocks_shares(
    divisor: int, want: tuple[tuple[float, ...], ...]
) -> None:
    # alpha 20, beta 10: a batch of 1 takes 30 (half an accelerator: 50), one of 2 takes 50 (90).
    latency = emulated_latency((20, 10), shares=(1.0, 3.0), batch_sizes=(1, 2), divisor=divisor)

    assert (latency.divisor, latency.median_micros) == (divisor, want)


def test_vgpu_is_timed_beside_busy_co_tenants() -> None:
    # Two processes on the CPU: the choreography is the same, only MPS is missing.
    request = REQUEST.model_copy(update={"batch_sizes": (1, 128)})
    latency = time_divided(request, 2, device="cpu", seconds=0.5, progress=silent)

    assert latency.divisor == 2
    one, many = totals(latency)
    assert one < many


def test_vgpu_process_that_dies_is_an_error() -> None:
    request = REQUEST.model_copy(update={"model": ModelSource(entrypoint="nowhere:model")})

    with pytest.raises(VgpuError, match="ended with status 1"):
        time_divided(request, 2, device="cpu", seconds=0.5, progress=silent)


@pytest.mark.gpu
@pytest.mark.skipif(not shares_gpus(), reason="there is no GPU with an MPS control daemon")
def test_part_of_a_gpu_is_slower_than_all_of_it() -> None:
    request = REQUEST.model_copy(update={"batch_sizes": (32, 64)})
    model = partition_source(request.model, request.input, request.blocks)
    whole = BlockTimer(model, request, torch.device("cuda")).time_all(2.0, silent)

    quarter = time_divided(request, 4, device="cuda", seconds=2.0, progress=silent)

    assert totals(quarter)[-1] > totals(whole)[-1]
