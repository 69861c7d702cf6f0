"""Models as plans cut them, in this process."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.runtime.serving.plans import Application, application

from partita_api.session.execution import CutDType, Execution
from partita_runtime.load.reference import WholeModels
from partita_runtime.load.rounded_models import RoundedModels, cuts_of

SAMPLE = {"input": np.linspace(-1, 1, 8, dtype=np.float32)}


def layers() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))


CHAIN = (
    application("chain")
    .model("first", input=(8,), outputs=((8,),), entrypoint=f"{__name__}:layers")
    .model("second", input=(8,), outputs=((8,),), entrypoint=f"{__name__}:layers")
    .edge("first", "second")
)


def cut_at(app: Application, dtype: CutDType) -> tuple[RoundedModels, Any]:
    spec = app.with_spec(execution=Execution(cut_dtype=dtype)).session.spec
    return RoundedModels(spec, [app.plan.spec]), WholeModels(spec).answer(SAMPLE)["second"]


@pytest.mark.parametrize(
    ("stages", "dtype", "want_off"),
    [
        pytest.param(1, CutDType.FP16, (0, 0), id="no cut"),
        pytest.param(2, CutDType.FP32, (0, 1e-6), id="cut in full precision"),
        pytest.param(2, CutDType.FP16, (1e-6, 2e-3), id="cut in half precision"),
        pytest.param(4, CutDType.FP16, (1e-6, 4e-3), id="three cuts in half precision"),
    ],
)
def test_only_rounding_tells_cut_models_from_whole_ones(
    stages: int, dtype: CutDType, want_off: tuple[float, float]
) -> None:
    models, want = cut_at(replace(CHAIN, stages=stages), dtype)

    (answer,) = models.answers(SAMPLE)

    least, most = want_off
    assert least <= np.abs(answer.tensors["second"] - want).max() / np.abs(want).max() <= most
    assert [module.module for module in answer.modules] == (["first", "second"] if stages > 1 else [])


def test_cut_model_and_whole_model_get_the_same_input() -> None:
    """The second model gets the rounded answer of the first one in both cases."""
    models, _ = cut_at(replace(CHAIN, stages=2), CutDType.FP16)

    (answer,) = models.answers(SAMPLE)

    first, second = answer.modules
    with torch.no_grad():
        want = layers()(torch.from_numpy(first.rounded[0])[None])[0].numpy()
    np.testing.assert_array_equal(second.whole[0], want)


def test_each_combination_of_pipelines_has_an_answer() -> None:
    spec = CHAIN.session.spec
    plans = [replace(CHAIN, stages=stages).plan.spec for stages in (1, 2, 4)]

    assert cuts_of(plans) == {"first": ((), (2,), (1, 2, 3)), "second": ((), (2,), (1, 2, 3))}
    answers = [*RoundedModels(spec, plans).answers(SAMPLE)]
    assert len(answers) == 9
    assert {tuple(module.cuts for module in answer.modules) for answer in answers} >= {(), ((2,), (2,))}


def test_pipelines_with_the_same_cuts_count_once() -> None:
    assert cuts_of([replace(CHAIN, stages=2, slices=(1, 2)).plan.spec])["first"] == ((2,),)


def test_size_classes_are_cut_like_modules() -> None:
    app = application("reading").model(
        "read",
        input=(2, 32),
        sizes=(8, 32),
        outputs=((1, -1),),
        entrypoint="tests.runtime.serving.models:columns",
    )
    app = replace(app, stages=2)
    models, whole = RoundedModels(app.session.spec, [app.plan.spec]), WholeModels(app.session.spec)
    for width, name in ((5, "read-s8"), (9, "read-s32")):
        request = {"input": np.linspace(-1, 1, 2 * width, dtype=np.float32).reshape(2, width)}
        (answer,) = models.answers(request)
        assert [module.module for module in answer.modules] == [name]
        np.testing.assert_allclose(answer.tensors["read"], whole.answer(request)["read"], atol=1e-2)
