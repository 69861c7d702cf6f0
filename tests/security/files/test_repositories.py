"""Attacks by repositories of Hugging Face: code, pickles, files of others, other repositories, and forged content."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.models.hugging_face.checkpoints import save
from tests.runtime.models.hugging_face.hub import COMMIT, OLD_COMMIT, Hub, Repository, serving_hub

from partita_api.session.module import ModelSource
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.hugging_face.repository import find_checkpoint
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.models.source import load_model

NAME = "acme/model"
CODE = """
import pathlib
pathlib.Path({trace!r}).touch()
from transformers import BertConfig, BertForSequenceClassification
class Config(BertConfig):
    pass
class Model(BertForSequenceClassification):
    config_class = Config
"""
OWN_CODE = {"AutoConfig": "own.Config", "AutoModelForSequenceClassification": "own.Model"}


class Touching:
    """A pickle that leaves a trace when it is read."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._trace,)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file that code of a repository makes."""
    return tmp_path / "trace"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(hub_directory=str(tmp_path), hub_offline=True)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint in the platform's directory."""
    save(tmp_path / NAME)
    return tmp_path / NAME


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving_hub() as hub:
        yield hub


def configure(checkpoint: Path, **entries: Any) -> None:
    path = checkpoint / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def refusal(**fields: Any) -> ModelError:
    with pytest.raises(ModelError) as refused:
        load_model(ModelSource(hugging_face=NAME, **fields))
    return refused.value


@pytest.mark.parametrize("model_type", ["bert", "own"])
def test_code_of_a_repository_does_not_run(model_type: str, checkpoint: Path, trace: Path) -> None:
    (checkpoint / "own.py").write_text(CODE.format(trace=str(trace)))
    configure(checkpoint, auto_map=OWN_CODE, model_type=model_type)

    refused = refusal()

    assert refused.reason is ModelErrorReason.FORBIDDEN
    assert "models.allowRemoteCode" in refused.message
    assert not trace.exists()


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        pytest.param({"remote_code": True, "repositories": (f"{NAME}@{COMMIT}",)}, True, id="allowed for the commit"),
        pytest.param({"remote_code": True, "repositories": ("acme/",)}, False, id="no commit"),
        pytest.param({"repositories": (f"{NAME}@{COMMIT}",)}, False, id="not allowed"),
    ],
)
def test_code_runs_only_if_the_platform_lists_its_commit(
    rules: dict[str, Any], runs: bool, checkpoint: Path, trace: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkpoint / "own.py").write_text(CODE.format(trace=str(trace)))
    configure(checkpoint, auto_map=OWN_CODE, model_type="own", architectures=["Model"])
    hub.repositories[NAME] = Repository({path.name: path.read_bytes() for path in checkpoint.iterdir()})
    cache = checkpoint.parent.parent / "cache"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(cache / "code"))
    policy = ModelPolicy(hub_endpoint=hub.url, hub_directory=str(cache), **rules)
    monkeypatch.setenv(VARIABLE, policy_text(policy))

    if runs:
        load_model(ModelSource(hugging_face=NAME))
    else:
        assert refusal().reason is ModelErrorReason.FORBIDDEN
        assert "own.py" not in hub.downloaded

    assert trace.exists() == runs


def test_a_repository_with_pickles_only_is_refused(checkpoint: Path, trace: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(Touching(trace)))

    refused = refusal()

    assert "save the model with save_pretrained" in refused.message
    assert not trace.exists()


@pytest.mark.parametrize(
    "way",
    [
        "../../secret/model.safetensors",
        "/etc/model.safetensors",
        "sub/model.safetensors",
        "pytorch_model.bin",
        "",
        7,
    ],
)
def test_the_index_cannot_name_other_files(way: Any, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"bert.pooler.dense.weight": way}}))

    assert "does not name files of safetensors beside it" in refusal().message


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param({"quantization_config": {"quant_method": "bitsandbytes"}}, id="another package"),
        pytest.param({"use_timm_backbone": True, "backbone": "resnet18"}, id="timm"),
        pytest.param({"use_pretrained_backbone": True, "backbone": "evil/pickles"}, id="another repository"),
        pytest.param({"vision_config": {"use_pretrained_backbone": True}}, id="in a part of the model"),
        pytest.param({"layers": [{"auto_map": OWN_CODE}]}, id="code in a part of the model"),
    ],
)
def test_a_configuration_cannot_load_from_elsewhere(entries: dict[str, Any], checkpoint: Path) -> None:
    configure(checkpoint, **entries)

    assert refusal().reason is ModelErrorReason.FORBIDDEN


@pytest.mark.parametrize(
    ("content", "want_words"),
    [
        pytest.param(b"[" * 100_000, "is no JSON", id="deep"),
        pytest.param(b"[]", "is no JSON object", id="a list"),
        pytest.param(b" " * (1024 * 1024 + 1), "more than 1048576", id="large"),
    ],
)
def test_a_configuration_that_is_none_is_refused(content: bytes, want_words: str, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_bytes(content)

    assert want_words in refusal().message


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xff" * 8 + b"{}", id="a header larger than the file"),
        pytest.param(b"\x02" + b"\0" * 7 + b"{}", id="no tensors"),
        pytest.param(pickle.dumps([1, 2]), id="a pickle"),
    ],
)
def test_files_of_safetensors_that_are_none_are_refused(content: bytes, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)

    assert refusal().reason is ModelErrorReason.FILE_UNREADABLE


@pytest.mark.parametrize("revision", ["../../../etc", "a/../../b", ".", "-x", "a//b", "/etc"])
def test_a_revision_is_no_path(revision: str) -> None:
    with pytest.raises(ValueError, match="revision"):
        ModelSource(hugging_face=NAME, revision=revision)


@pytest.mark.parametrize("repository", ["../etc", "acme/..", "acme", "acme/a/b", "https://evil/x", "acme/mod el"])
def test_a_repository_is_no_path(repository: str) -> None:
    with pytest.raises(ValueError, match="hugging_face"):
        ModelSource(hugging_face=repository)


class TestForgery:
    """A mirror that gives other content than it promises."""

    def test_content_of_another_digest_is_refused(self, hub: Hub, tmp_path: Path) -> None:
        files = {"config.json": b"{}", "model.safetensors": b"true weights"}
        hub.repositories[NAME] = Repository(files, replaced={"model.safetensors": b"evil weights"})

        with pytest.raises(ModelError, match="does not have the digest"):
            find_checkpoint(NAME, None, self._policy(hub, tmp_path), print)

    def test_another_commit_than_the_requested_one_is_refused(self, hub: Hub, tmp_path: Path) -> None:
        files = {"config.json": b"{}", "model.safetensors": b"weights"}
        hub.repositories[NAME] = Repository(files, revisions={COMMIT: OLD_COMMIT})

        with pytest.raises(ModelError, match="correct the mirror"):
            find_checkpoint(NAME, COMMIT, self._policy(hub, tmp_path), print)
        assert not hub.downloaded

    def _policy(self, hub: Hub, tmp_path: Path) -> ModelPolicy:
        return ModelPolicy(hub_endpoint=hub.url, hub_directory=str(tmp_path / "cache"))
