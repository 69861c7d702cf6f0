"""Executors with artificial times: emulated accelerators, and slower ones."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.execution import CutDType
from partita_api.session.module import DType, ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import Array
from partita_runtime.execution.profiled_time import ProfiledTimeExecutor
from partita_runtime.execution.stage_build import EmulatedStage, StageBuild, emulated_stage

INPUT = TensorSpec(shape=(3, 8, 8))
SOURCE = ModelSource(entrypoint="nowhere:model")


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def profile(*cuts: Cut) -> Profile:
    blocks = len(cuts) + 1
    return Profile(
        key="k",
        request=ProfileRequest(model=SOURCE, input=INPUT, blocks=blocks, batch_sizes=(1, 2, 4), pool="p"),
        partition="d",
        batch_sizes=(1, 2, 4),
        latency=(VgpuLatency(divisor=1, median_micros=tuple((1000.0, 1500.0, 2500.0) for _ in range(blocks))),),
        cuts=cuts,
        outputs=(TensorSpec(shape=(2,)), TensorSpec(shape=(5,), dtype=DType.INT64)),
    )


SPECS = (TensorSpec(shape=(4, 2)), TensorSpec(shape=(3,), dtype=DType.UINT8))
PROFILE = profile(Cut(bytes=400), Cut(bytes=35, tensors=2, specs=SPECS))


@pytest.mark.parametrize(
    ("blocks", "cut_dtype", "want_inputs", "want_outputs", "want_micros"),
    [
        pytest.param((0, 3), "FP16", (INPUT,), PROFILE.outputs, (3000, 4500, 6000, 7500), id="whole model"),
        pytest.param(
            (0, 1), "FP16", (INPUT,), (TensorSpec(shape=(100,), dtype=DType.FP16),), (1000, 1500, 2000, 2500), id="flat"
        ),
        pytest.param(
            (1, 2),
            "FP32",
            (TensorSpec(shape=(100,)),),
            SPECS,
            (1000, 1500, 2000, 2500),
            id="full precision",
        ),
        pytest.param(
            (2, 3),
            "FP16",
            (TensorSpec(shape=(4, 2), dtype=DType.FP16), SPECS[1]),
            PROFILE.outputs,
            (1000, 1500, 2000, 2500),
            id="known tensors",
        ),
    ],
)
def test_emulated_stage_follows_its_profile(
    blocks: tuple[int, int],
    cut_dtype: str,
    want_inputs: tuple[TensorSpec, ...],
    want_outputs: tuple[TensorSpec, ...],
    want_micros: tuple[int, ...],
) -> None:
    stage = emulated_stage(PROFILE, *blocks, max_batch=4, cut_dtype=CutDType(cut_dtype))

    assert stage == EmulatedStage(latency_micros=want_micros, inputs=want_inputs, outputs=want_outputs)


def emulated(*micros: int) -> EmulatedStage:
    return EmulatedStage(latency_micros=micros, inputs=(INPUT,), outputs=PROFILE.outputs)


def test_emulated_execution_takes_the_profiled_time_and_answers_zeros() -> None:
    built = build_executor(
        StageBuild(model=SOURCE, input=INPUT, blocks=3, max_batch=2, emulation=emulated(2_000, 30_000))
    )
    batch = [np.ones((2, *INPUT.shape), np.float32)]
    answer: list[Array] = []

    cpu = time.process_time()
    took = seconds(lambda: answer.extend(built.executor.run(batch)))
    cpu = time.process_time() - cpu

    assert took >= 0.030
    assert cpu < took / 2, "waiting must not use the CPU"
    assert [(a.shape, str(a.dtype), a.any()) for a in answer] == [((2, 2), "float32", False), ((2, 5), "int64", False)]


def test_emulated_executor_refuses_wrong_batches() -> None:
    executor = build_executor(
        StageBuild(model=SOURCE, input=INPUT, blocks=3, max_batch=1, emulation=emulated(1))
    ).executor

    with pytest.raises(ValueError, match="a batch of 2 is outside 1 to 1"):
        executor.run([np.zeros((2, *INPUT.shape), np.float32)])


class Working:
    """Computes a sum of numbers."""

    memory_bytes = 7

    def __init__(self) -> None:
        self.warmed: list[int] = []

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        total = sum(np.ones(1000).sum() for _ in range(2000))
        return [inputs[0] * total]

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        self.warmed.extend(batch_sizes)


@pytest.mark.parametrize(
    ("batch", "at_least"), [pytest.param(1, 0.05, id="one sample"), pytest.param(2, 0.1, id="two samples")]
)
def test_real_answers_arrive_at_the_profiled_time_of_their_batch(batch: int, at_least: float) -> None:
    working = Working()
    executor = ProfiledTimeExecutor(working, (50_000, 100_000))
    answer: list[Array] = []

    took = seconds(lambda: answer.extend(executor.run([np.ones(batch)])))
    executor.warm_up([1, 2])

    assert took >= at_least
    assert answer[0].tolist() == [2_000_000.0] * batch
    assert (executor.memory_bytes, working.warmed) == (7, [1, 2])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        pytest.param({"first": 2, "end": 2}, "end must be above first", id="no blocks"),
        pytest.param({"emulation": emulated(1), "latency_micros": (2,), "max_batch": 1}, "not both", id="two"),
        pytest.param({"emulation": emulated(1, 2), "max_batch": 3}, "batches up to 2, not 3", id="missing times"),
        pytest.param({"latency_micros": (1, 2), "max_batch": 3}, "batches up to 2, not 3", id="missing speeds"),
    ],
)
def test_invalid_stage_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        StageBuild.model_validate({"model": SOURCE, "input": INPUT, "blocks": 3, **fields})


@pytest.mark.parametrize(
    "module",
    [
        "partita_runtime",
        "partita_runtime.models.errors",
        "partita_runtime.models.layers",
        "partita_runtime.models.standard_inputs",
        "partita_runtime.execution.build",
        "partita_runtime.execution.emulation",
        "partita_runtime.execution.profiled_time",
    ],
)
def test_emulation_needs_no_torch(module: str) -> None:
    program = f"import sys; sys.modules['torch'] = None; import {module}"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
