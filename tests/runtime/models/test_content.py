"""What a model was loaded from: stages of a plan load exactly what was profiled."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file, save_file
from tests.runtime.models.hugging_face.checkpoints import TEXT, save
from tests.runtime.models.hugging_face.hub import COMMIT, OLD_COMMIT, Repository, serving_hub

from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.models.source import LoadedSource, load_source

INPUT = TensorSpec(shape=(4,))
NAME = "acme/model"


def layers(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()


def exported(path: Path, seed: int) -> ModelSource:
    batch = torch.export.Dim("batch")
    program = torch.export.export(layers(seed), (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path / "model.pt2")
    return ModelSource(file=str(path / "model.pt2"))


def weights(path: Path, seed: int) -> ModelSource:
    torch.manual_seed(seed)
    save_file(torch.nn.Linear(4, 3).state_dict(), path / "weights.safetensors")
    return ModelSource(
        entrypoint="torch.nn:Linear",
        kwargs={"in_features": 4, "out_features": 3},
        weights=str(path / "weights.safetensors"),
    )


@pytest.mark.parametrize("write", [exported, weights])
def test_other_weights_at_the_same_path_are_not_served_by_the_plan_of_the_former(write: object, tmp_path: Path) -> None:
    """The cut is the same, so some replicas would compute with the former weights, and others with the new ones."""
    assert callable(write)
    source = write(tmp_path, seed=1)
    (file,) = tmp_path.iterdir()
    content = load_source(source).content
    stage = StageBuild(model=source, input=INPUT, blocks=2, content=content)

    assert content == hashlib.sha256(file.read_bytes()).hexdigest()
    former = build_executor(stage)
    write(tmp_path, seed=2)
    with pytest.raises(ModelError, match="profiles and plans again") as refused:
        build_executor(stage)

    assert refused.value.reason is ModelErrorReason.CONTENT_CHANGED
    unchecked = stage.model_copy(update={"content": None})
    assert build_executor(unchecked).partition == former.partition


def test_weights_beside_an_onnx_file_are_part_of_its_content(tmp_path: Path) -> None:
    """The .onnx file itself stays the same when its weights change."""
    path = tmp_path / "model.onnx"
    contents, graphs = [], set()
    for bias in (1.0, 2.0, 1.0):
        save_with_weights_beside(path, bias)
        graphs.add(path.read_bytes())
        contents.append(load_source(ModelSource(file=str(path))).content)
    first, other, again = contents

    assert len(graphs) == 1
    assert first == again != other
    assert first != hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ModelError) as refused:
        load_source(ModelSource(file=str(path)), content=other)
    assert refused.value.reason is ModelErrorReason.CONTENT_CHANGED


def save_with_weights_beside(path: Path, bias: float) -> None:
    value = numpy_helper.from_array(np.full((512,), bias, np.float32), "bias")
    shape = ["batch", 512]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [value],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path.parent / "weights.bin").unlink(missing_ok=True)  # onnx appends to it
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin")


def test_an_entrypoint_without_weights_has_no_content() -> None:
    source = ModelSource(entrypoint="torch.nn:Linear", kwargs={"in_features": 4, "out_features": 3})

    assert load_source(source).content is None


def classes_of(loaded: LoadedSource) -> torch.Tensor:
    assert isinstance(loaded.model, torch.nn.Module)
    with torch.no_grad():
        logits: torch.Tensor = loaded.model(torch.ones(1, *TEXT.shape, dtype=torch.int64))["logits"]
    return logits


def test_replicas_load_the_commit_that_was_profiled_also_after_the_branch_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "saved")
    former = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    tensors = {name: tensor + 1 for name, tensor in load_file(tmp_path / "saved/model.safetensors").items()}
    save_file(tensors, tmp_path / "saved/model.safetensors", {"format": "pt"})
    moved = {**former, "model.safetensors": (tmp_path / "saved/model.safetensors").read_bytes()}
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    source = ModelSource(hugging_face=NAME)
    with serving_hub() as hub:

        def on_node(number: int) -> None:
            rules = ModelPolicy(hub_endpoint=hub.url, hub_directory=str(tmp_path / f"node-{number}"))
            monkeypatch.setenv(VARIABLE, policy_text(rules))

        hub.repositories[NAME] = Repository(former, revisions={"main": OLD_COMMIT})
        on_node(1)
        profiled = load_source(source)
        hub.repositories[NAME] = Repository(moved, {"main": COMMIT, "former": OLD_COMMIT}, older={OLD_COMMIT: former})
        on_node(2)
        replica, latest = load_source(source, content=profiled.content), load_source(source)

    assert (profiled.content, replica.content, latest.content) == (OLD_COMMIT, OLD_COMMIT, COMMIT)
    assert torch.equal(classes_of(replica), classes_of(profiled))
    assert not torch.equal(classes_of(latest), classes_of(profiled))


def test_a_plain_directory_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(hub_directory=str(tmp_path), hub_offline=True)))
    save(tmp_path / NAME)
    profiled = load_source(ModelSource(hugging_face=NAME))
    path = tmp_path / NAME / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path, {"format": "pt"})

    with pytest.raises(ModelError) as refused:
        load_source(ModelSource(hugging_face=NAME), content=profiled.content)
    assert refused.value.reason is ModelErrorReason.CONTENT_CHANGED
