"""Whole models in this process answer like a frontend: the same names, one row per sub-request."""

import numpy as np
import pytest
import torch

from partita_api.inferencesession import InferenceSessionSpec
from partita_runtime.load.reference import WholeModels
from partita_runtime.models.errors import ModelError


class Scale(torch.nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


def scale(by: float) -> Scale:
    return Scale(by)


def split(
    request: dict[str, np.ndarray], upstream: dict[str, list[np.ndarray]], *, copies: int
) -> dict[str, np.ndarray]:
    (scaled,) = upstream["first"]
    return {"left": np.stack([scaled + request["input"]] * copies), "right": np.empty((0, 2), np.float32)}


def session(copies: int, entrypoint: str = f"{__name__}:scale") -> InferenceSessionSpec:
    def model(name: str, by: float) -> dict[str, object]:
        return {"name": name, "model": {"entrypoint": entrypoint, "kwargs": {"by": by}}, "input": {"shape": [2]}}

    return InferenceSessionSpec.model_validate(
        {
            "slo": {"latencyMs": 100},
            "rate": {"requestsPerSecond": 1},
            "modules": [
                model("first", 10),
                {"name": "split", "function": {"entrypoint": f"{__name__}:split", "kwargs": {"copies": copies}}},
                model("left", 2),
                model("right", 3),
            ],
            "edges": [
                {"from": "first", "to": "split"},
                {"from": "split", "to": "left", "fanOut": {"max": 3}},
                {"from": "split", "to": "right", "fanOut": {"max": 3}},
            ],
        }
    )


@pytest.mark.parametrize(
    ("copies", "want_rows"),
    [
        pytest.param(2, 2, id="two sub-requests"),
        pytest.param(5, 3, id="no more than fanOut.max"),
        pytest.param(1, 1, id="one sub-request"),
    ],
)
def test_sample_goes_through_the_dag(copies: int, want_rows: int) -> None:
    answer = WholeModels(session(copies)).answer({"input": np.array([1, 2], np.float32)})

    np.testing.assert_array_equal(answer["left"], [[22, 44]] * want_rows)
    assert "right" not in answer, "no sub-request was sent there"


def test_session_with_an_endpoint_has_no_reference() -> None:
    endpoint = {"name": "other", "endpoint": {"url": "http://a", "model": "b"}, "input": {"shape": [2]}}
    found = session(1).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    spec = InferenceSessionSpec.model_validate({**found, "modules": [*found["modules"], endpoint]})
    with pytest.raises(ModelError, match="another server answers for other"):
        WholeModels(spec)


def test_model_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(ModelError, match="there_is_no_such"):
        WholeModels(session(1, "there_is_no_such.module:model"))


def test_samples_of_variable_size_are_padded_as_by_a_frontend() -> None:
    module = {
        "name": "first",
        "model": {"entrypoint": f"{__name__}:scale", "kwargs": {"by": 2.0}},
        "input": {"shape": [8], "variableDimension": 0, "padding": "-1"},
        "sizes": [{"size": 4}, {"size": 8}],
    }
    spec = {"slo": {"latencyMs": 100}, "rate": {"requestsPerSecond": 1}, "modules": [module]}
    models = WholeModels(InferenceSessionSpec.model_validate(spec))
    answer = models.answer({"input": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(answer["first"], [[2, 4, 6, -2]])
    assert models.answer({"input": np.ones(5, np.float32)})["first"].shape == (1, 8)
