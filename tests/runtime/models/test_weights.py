"""Weights from a file for an entrypoint's model: tensors only, complete, and from allowed places."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from tests.runtime.models.intruder import Intruder
from tests.runtime.models.sample_models import Residuals

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.models.source import load_model

ENTRYPOINT = "tests.runtime.models.sample_models:Residuals"
SIZE = {"width": 4, "depth": 1}
Save = Callable[[torch.nn.Module, Path], object]


def as_state_dict(model: torch.nn.Module, path: Path) -> None:
    torch.save(model.state_dict(), path)


def source(path: Path, **fields: Any) -> ModelSource:
    return ModelSource(entrypoint=ENTRYPOINT, kwargs=SIZE, weights=str(path), **fields)


@pytest.mark.parametrize(
    ("name", "save"),
    [
        pytest.param("m.safetensors", save_model, id="safetensors"),
        pytest.param("m.pt", as_state_dict, id="a state dict"),
        pytest.param("m.bin", as_state_dict, id="a state dict by another name"),
    ],
)
def test_the_model_gets_the_weights_of_the_file(name: str, save: Save, tmp_path: Path) -> None:
    trained = Residuals(**SIZE)
    save(trained, tmp_path / name)

    loaded = load_model(source(tmp_path / name))

    assert isinstance(loaded, Residuals)
    assert not loaded.training
    want = trained.state_dict()
    assert all(torch.equal(tensor, want[key]) for key, tensor in loaded.state_dict().items())


def test_a_pickled_object_among_the_weights_is_not_run(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace", tmp_path / "m.pt"
    torch.save({"stem.weight": Intruder(trace)}, path)

    with pytest.raises(ModelError, match="only tensors"):
        load_model(source(path))
    assert not trace.exists()


def truncated(_: torch.nn.Module, path: Path) -> None:
    path.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{")


def of_a_wider_model(_: torch.nn.Module, path: Path) -> None:
    save_model(Residuals(width=5, depth=1), path)


def of_a_deeper_model(_: torch.nn.Module, path: Path) -> None:
    save_model(Residuals(width=4, depth=2), path)


def a_part(model: torch.nn.Module, path: Path) -> None:
    save_file({"head.bias": model.state_dict()["head.bias"]}, path)


def a_tensor(_: torch.nn.Module, path: Path) -> None:
    torch.save(torch.zeros(3), path)


@pytest.mark.parametrize(
    ("name", "save", "want_words"),
    [
        pytest.param("m.safetensors", truncated, "cannot be read as weights", id="half a file"),
        pytest.param("m.pt", truncated, "cannot be read as weights", id="half a state dict"),
        pytest.param("m.pt", a_tensor, "not a state dict", id="not a state dict"),
        pytest.param("m.safetensors", of_a_wider_model, "do not match Residuals", id="other shapes"),
        pytest.param("m.safetensors", of_a_deeper_model, "do not match Residuals", id="more than the model has"),
        pytest.param("m.safetensors", a_part, "do not match Residuals", id="less than the model has"),
        pytest.param("m.onnx", as_state_dict, "not a known kind of weights", id="another kind of file"),
    ],
)
def test_weights_that_do_not_match_are_refused(name: str, save: Save, want_words: str, tmp_path: Path) -> None:
    save(Residuals(**SIZE), tmp_path / name)

    with pytest.raises(ModelError, match=want_words) as refused:
        load_model(source(tmp_path / name))
    assert refused.value.reason == "FileUnreadable"


def test_weights_are_read_from_allowed_places_and_with_the_right_digest_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.safetensors"
    save_model(Residuals(**SIZE), path)

    with pytest.raises(ModelError, match="does not match its digest"):
        load_model(source(path, sha256="0" * 64))
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(files=("/models/",))))
    with pytest.raises(ModelError, match="not in a location that the platform allows"):
        load_model(source(path))
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(require_digest=True)))
    with pytest.raises(ModelError, match="has no digest"):
        load_model(source(path))
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(modules=("traffic",))))
    with pytest.raises(ModelError, match="not in a module that the platform allows"):
        load_model(source(path))
