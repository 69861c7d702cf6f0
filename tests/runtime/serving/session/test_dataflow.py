"""Answers of functions that do not fit a model of several inputs."""

from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.plans import application

from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.scheduling.requests import SubRequest
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.dataflow import DataflowError, SampleTensors

IDS, MASK = (NamedInput(name=name, shape=(3,), dtype=DType.INT64) for name in ("ids", "mask"))
APP = (
    application("texts")
    .function("reader", "echo", input=TensorSpec(shape=(1,), dtype=DType.BYTES))
    .model("encoder", inputs=(IDS, MASK))
    .model("plain", input=(3,))
    .edge("reader", "encoder", most=4)
    .edge("reader", "plain", most=4)
)
READER = SubRequest(sub_id=0, module="reader", parents=(), sample=0, deadline=0)
ROWS = np.arange(6).reshape(2, 3)


def sample() -> SampleTensors:
    interface = Interface(APP.name, APP.session.spec, APP.epoch.outputs, vocabularies={"encoder": (6, 0)})
    return SampleTensors(interface, {"input": np.array([b"one"], np.object_)})


def test_each_sample_has_a_row_of_each_input() -> None:
    answered = sample()
    assert answered.function_answered(READER, {"encoder": {"mask": ROWS * 0, "ids": ROWS}}) == {"encoder": 2}
    second = SubRequest(sub_id=2, module="encoder", parents=(0,), sample=1, deadline=0)
    assert [tensor.tolist() for tensor in answered.model_inputs(second)] == [[3, 4, 5], [0, 0, 0]]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param({"encoder": ROWS}, "one array for 'encoder'; return a mapping of ids, mask", id="one array"),
        pytest.param(
            {"encoder": {"ids": ROWS}}, "a mapping of ids for 'encoder'; return a mapping of ids", id="missing"
        ),
        pytest.param(
            {"encoder": {"ids": ROWS, "mask": ROWS, "x": ROWS}}, "a mapping of ids, mask, x", id="one too many"
        ),
        pytest.param({"plain": {"input": ROWS}}, "a mapping of input for 'plain'; return one array", id="a mapping"),
        pytest.param({"encoder": {"ids": ROWS, "mask": ROWS[:1]}}, "return as many for each", id="fewer of one"),
        pytest.param(
            {"encoder": {"ids": ROWS, "mask": ROWS.astype(np.int32)}},
            r"int32\[2, 3\] for 'encoder' as 'mask', which takes int64",
            id="another type",
        ),
        pytest.param(
            {"encoder": {"ids": ROWS + 1, "mask": ROWS}},
            "'reader' answered 6 for 'encoder' as 'ids', whose model has rows 0 to 5 only; use the tokenizer",
            id="outside of the vocabulary",
        ),
        pytest.param(
            {"encoder": {"ids": [ROWS[0], ROWS[1] - 4], "mask": [ROWS[0], ROWS[1]]}}, "answered -1", id="a list"
        ),
        pytest.param(
            {"encoder": {"ids": ROWS, "mask": ROWS[:, :2]}}, r"int64\[2, 2\] for 'encoder'", id="another shape"
        ),
    ],
)
def test_answers_that_do_not_fit_are_explained(answer: dict[str, Any], says: str) -> None:
    with pytest.raises(DataflowError, match=says):
        sample().function_answered(READER, answer)
