"""Loads a checkpoint by transformers, as a module that takes and returns tensors."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from huggingface_hub import constants

from partita_api.session.module import HuggingFaceTask
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.hugging_face.checkpoint import CONFIG, Checkpoint, check_config, unreadable

AUTO_CLASSES: Final[Mapping[HuggingFaceTask, str]] = {
    HuggingFaceTask.FEATURE_EXTRACTION: "AutoModel",
    HuggingFaceTask.FILL_MASK: "AutoModelForMaskedLM",
    HuggingFaceTask.IMAGE_CLASSIFICATION: "AutoModelForImageClassification",
    HuggingFaceTask.IMAGE_SEGMENTATION: "AutoModelForSemanticSegmentation",
    HuggingFaceTask.OBJECT_DETECTION: "AutoModelForObjectDetection",
    HuggingFaceTask.QUESTION_ANSWERING: "AutoModelForQuestionAnswering",
    HuggingFaceTask.TEXT_CLASSIFICATION: "AutoModelForSequenceClassification",
    HuggingFaceTask.TOKEN_CLASSIFICATION: "AutoModelForTokenClassification",
}
"""The classes of transformers that load a model for each task."""

_ATTENTION: Final = ("sdpa", "eager")
"""Implementations of attention that torch.export can capture, the faster one first. Not all models have it."""
_POOLER: Final = "pooler."


class TensorModule(torch.nn.Module):
    """A model of transformers that takes one tensor, or several by name, and returns those of its answer by name."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.input_name: str = model.main_input_name
        """`input_ids` or `pixel_values`."""

    def forward(
        self,
        samples: torch.Tensor | None = None,
        *,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        pixel_mask: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        named = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "pixel_values": pixel_values,
            "pixel_mask": pixel_mask,
        }
        if samples is not None:
            named[self.input_name] = samples
        given = {name: tensor for name, tensor in named.items() if tensor is not None}
        answer = self.model(**given, return_dict=True)
        return {name: value for name, value in answer.items() if isinstance(value, torch.Tensor)}


def load_checkpoint(checkpoint: Checkpoint, task: HuggingFaceTask | None, *, with_code: bool) -> TensorModule:
    """The model in eval mode, in single precision. Raises ModelError.

    Transformers sees the files of the checkpoint only, and the hub cannot be reached meanwhile.
    """
    config_text = check_config(checkpoint.files[CONFIG], checkpoint.repository, with_code=with_code)
    with tempfile.TemporaryDirectory() as directory, _without_hub():
        for name, path in checkpoint.files.items():
            if name != CONFIG:
                (Path(directory) / name).symlink_to(path.absolute())
        (Path(directory) / CONFIG).write_bytes(config_text)
        try:
            model = _loaded(checkpoint.repository, directory, task, with_code)
        except ModelError:
            raise
        except Exception as error:
            raise unreadable(
                f"transformers {transformers.__version__} cannot load {checkpoint.repository}: "
                f"{type(error).__name__}: {_first_line(error)}; use a revision that it can load"
            ) from error
    return TensorModule(model).eval().requires_grad_(False)


def _loaded(repository: str, directory: str, task: HuggingFaceTask | None, with_code: bool) -> Any:
    config = transformers.AutoConfig.from_pretrained(directory, trust_remote_code=with_code)
    if hasattr(config, "use_cache"):
        config.use_cache = False  # the answer has no keys and values for the next token
    task = task or _task_of(config, repository)
    auto = getattr(transformers, AUTO_CLASSES[task])
    model, missing = _with_attention(auto, directory, config, with_code)
    if task is HuggingFaceTask.FEATURE_EXTRACTION and missing and all(name.startswith(_POOLER) for name in missing):
        model, missing = _with_attention(auto, directory, config, with_code, add_pooling_layer=False)
    if missing:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{repository} has no weights {', '.join(sorted(missing)[:3])} of {type(model).__name__}; set task to what "
            "the repository was trained for",
        )
    return model


def _with_attention(auto: Any, directory: str, config: Any, with_code: bool, **options: Any) -> tuple[Any, list[str]]:
    """The model, and the names of the weights that the checkpoint lacks. Raises any error of transformers."""
    for attention in _ATTENTION:
        try:
            model, found = auto.from_pretrained(
                directory,
                config=config,
                trust_remote_code=with_code,
                use_safetensors=True,
                dtype=torch.float32,
                attn_implementation=attention,
                output_loading_info=True,
                **options,
            )
        except ValueError:
            if attention == _ATTENTION[-1]:
                raise
        else:
            return model, list(found["missing_keys"])
    raise AssertionError("the last attempt returned or raised")


def _task_of(config: Any, repository: str) -> HuggingFaceTask:
    """The task of the first architecture. Raises ModelError for none, and for an unknown one."""
    architecture = next(iter(config.architectures or ()), None)
    own = getattr(config, "auto_map", {})
    for task, name in AUTO_CLASSES.items():
        classes = getattr(transformers, name)._model_mapping.get(type(config), None)
        classes = classes if isinstance(classes, tuple) else (classes,)
        names = [getattr(each, "__name__", None) for each in classes] + [str(own.get(name)).rpartition(".")[2]]
        if architecture is not None and architecture in names:
            return task
    raise ModelError(
        ModelErrorReason.FILE_UNREADABLE,
        f"{repository} is a {architecture or 'model without architectures'}, which is of no task that can be served; "
        f"set task to one of {', '.join(AUTO_CLASSES)}",
    )


@contextmanager
def _without_hub() -> Iterator[None]:
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
