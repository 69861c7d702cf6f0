"""Models of several inputs: their stages together answer like the whole model, whatever format it has."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from tests.runtime.models.onnx_files import exported
from tests.runtime.models.sample_models import encoder, halves, scored
from torch.export import Dim

from partita_api.session.execution import CutDType
from partita_api.session.module import DType, Inputs, ModelSource, NamedInput, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import Array
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.partitioned_model import WholeModel, partition_source
from partita_runtime.models.source import load_model
from partita_runtime.models.standard_inputs import standard_inputs

IDS = NamedInput(name="input_ids", shape=(8,), dtype=DType.INT64)
MASK = NamedInput(name="attention_mask", shape=(8,), dtype=DType.INT64)
IN_ORDER, REVERSED = (IDS, MASK), (MASK, IDS)
MODELS = "tests.runtime.models.sample_models"
BATCH = Dim("batch", min=1, max=64)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSource]:
    """The same encoder in every format."""
    folder = tmp_path_factory.mktemp("encoder")
    onnx.save_model(exported(encoder(), IN_ORDER, outputs=("hidden", "pooled")), folder / "encoder.onnx")
    ids, mask = (torch.from_numpy(array) for array in standard_inputs(IN_ORDER, 2))
    for name, args, kwargs in (
        ("by-position", (ids, mask), {}),
        ("by-name", (), {"attention_mask": mask, "input_ids": ids}),
        ("mixed", (ids,), {"attention_mask": mask}),
    ):
        shapes = {"input_ids": {0: BATCH}, "attention_mask": {0: BATCH}}
        torch.export.save(torch.export.export(encoder(), args, kwargs, dynamic_shapes=shapes), folder / f"{name}.pt2")
    files = {path.name: ModelSource(file=str(path)) for path in folder.iterdir()}
    return files | {"entrypoint": ModelSource(entrypoint=f"{MODELS}:encoder")}


def whole_answer(ids: Array, mask: Array) -> list[Array]:
    with torch.no_grad():
        return [tensor.numpy() for tensor in encoder()(torch.from_numpy(ids), torch.from_numpy(mask))]


@pytest.mark.parametrize("kind", ["entrypoint", "encoder.onnx", "by-position.pt2", "by-name.pt2", "mixed.pt2"])
@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 4), (0, 2, 3, 4)], ids=["one stage", "two stages", "three stages"])
@pytest.mark.parametrize("inputs", [IN_ORDER, REVERSED], ids=["as the model orders them", "in another order"])
def test_stages_together_answer_like_the_whole_model(
    sources: dict[str, ModelSource], kind: str, cuts: tuple[int, ...], inputs: tuple[NamedInput, ...]
) -> None:
    stages = []
    for first, end in pairwise(cuts):
        asked = StageBuild(
            model=sources[kind], inputs=inputs, blocks=4, first=first, end=end, cut_dtype=CutDType.FP32, max_batch=3
        )
        stages.append(build_executor(StageBuild.model_validate_json(asked.model_dump_json(by_alias=True))))
    assert not any(stage.warnings for stage in stages)
    assert [stage.inputs for stage in stages[1:]] == [stage.outputs for stage in stages[:-1]]
    generator = np.random.default_rng(1)
    for batch in (1, 3):
        ids, mask = generator.integers(0, 50, (batch, 8)), np.arange(8) < generator.integers(2, 8, (batch, 1))
        given = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        arrays: list[Array] = [given[spec.name] for spec in inputs]
        for stage in stages:
            arrays = stage.executor.run(arrays)
        for array, want in zip(arrays, whole_answer(*given.values()), strict=True):
            np.testing.assert_allclose(array, want, rtol=0, atol=1e-5)


def test_an_input_of_a_later_block_crosses_the_cuts_before_it() -> None:
    model = partition_source(ModelSource(entrypoint=f"{MODELS}:late"), LATE, 3)

    assert [[sample.dtype for sample in cut] for cut in model.cuts] == [["int16", "float32"]] * 2
    given = [torch.from_numpy(array) for array in standard_inputs(LATE, 3)]
    (answer,) = model.run(0, 3, given)
    values, shift = given
    assert torch.equal(answer[:, 0] - model.run(0, 3, [values, shift * 0])[0][:, 0], shift[:, 0].float())


LATE = (NamedInput(name="values", shape=(4,)), NamedInput(name="shift", shape=(1,), dtype=DType.INT16))


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param("encoder.onnx", ("hidden", "pooled"), id="the graph's names"),
        pytest.param("halves", ("total", "shift", "values"), id="the keys of a mapping"),
        pytest.param("halves.pt2", ("total", "shift", "values"), id="of an exported one"),
        pytest.param("entrypoint", ("", ""), id="a tuple has none"),
        pytest.param("uncut", ("difference", "pair.0", "pair.1"), id="of a model that is not cut"),
    ],
)
def test_outputs_have_the_models_own_names(
    sources: dict[str, ModelSource], kind: str, want: tuple[str, ...], tmp_path: Path
) -> None:
    takes: Inputs = TensorSpec(shape=(4,))
    if kind == "halves.pt2":
        given = (torch.zeros(2, 4),)
        torch.export.save(torch.export.export(halves(), given, dynamic_shapes=({0: BATCH},)), tmp_path / "halves.pt2")
        source = ModelSource(file=str(tmp_path / "halves.pt2"))
    elif kind in ("halves", "uncut"):
        source = ModelSource(entrypoint=f"{MODELS}:{kind}")
    else:
        source, takes = sources[kind], IN_ORDER
    model = partition_source(source, takes, 2)
    assert model.output_names == want
    assert WholeModel(load_model(source), takes).output_names() == want
    assert len(model.outputs) == len(want)


def test_a_model_that_is_not_cut_gets_its_inputs_by_name() -> None:
    inputs = (NamedInput(name="scale", shape=(1,)), NamedInput(name="input", shape=(4,)))
    model = partition_source(ModelSource(entrypoint=f"{MODELS}:scored"), inputs, 4)

    assert (len(model.blocks), model.warnings[0].startswith("the model is served as one block")) == (1, True)
    scale, values = torch.tensor([[2.0], [3.0]]), torch.ones(2, 4)
    assert torch.equal(model.run(0, 1, [scale, values])[0], scored()(values, scale))


@pytest.mark.parametrize(
    ("kind", "inputs", "says"),
    [
        pytest.param("encoder.onnx", TensorSpec(shape=(8,), dtype=DType.INT64), "declare inputs", id="ONNX, one"),
        pytest.param("encoder.onnx", (IDS,), "takes input_ids, attention_mask, not input_ids", id="ONNX, too few"),
        pytest.param(
            "encoder.onnx",
            (IDS, NamedInput(name="attention_mask", shape=(8,), dtype=DType.BOOL)),
            "attention_mask has elements of type INT64, not BOOL",
            id="ONNX, another type",
        ),
        pytest.param("mixed.pt2", TensorSpec(shape=(8,), dtype=DType.INT64), "not one tensor", id="export, one"),
        pytest.param("mixed.pt2", (IDS,), "takes input_ids, attention_mask, not input_ids", id="export, too few"),
        pytest.param(
            "mixed.pt2",
            (IDS, NamedInput(name="attention_mask", shape=(9,), dtype=DType.INT64)),
            "exported for samples of ['8'], not [9]",
            id="export, another shape",
        ),
        pytest.param(
            "entrypoint",
            (IDS, NamedInput(name="mask", shape=(8,), dtype=DType.INT64)),
            "unexpected keyword argument 'mask'",
            id="entrypoint, another name",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_explained(
    sources: dict[str, ModelSource], kind: str, inputs: Inputs, says: str
) -> None:
    with pytest.raises(ModelError) as refused:
        partition_source(sources[kind], inputs, 4)
    assert refused.value.reason is ModelErrorReason.BAD_INPUT
    assert says in refused.value.message
