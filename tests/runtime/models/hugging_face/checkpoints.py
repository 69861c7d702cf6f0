"""Small checkpoints of transformers, with random weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers

from partita_api.session.module import DType, HuggingFaceTask, TensorSpec

TEXT: Final = TensorSpec(shape=(6,), dtype=DType.INT64)
IMAGE: Final = TensorSpec(shape=(3, 32, 32))

_BERT: Final[Mapping[str, Any]] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 40,
    "max_position_embeddings": 16,
    "num_labels": 3,
}
_VIT: Final[Mapping[str, Any]] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 4,
}
_SEGFORMER: Final[Mapping[str, Any]] = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
    "decoder_hidden_size": 16,
    "num_labels": 5,
}
_YOLOS: Final[Mapping[str, Any]] = {**_VIT, "image_size": [32, 32], "num_detection_tokens": 7}

MODELS: Final[Mapping[HuggingFaceTask, tuple[str, str, Mapping[str, Any]]]] = {
    HuggingFaceTask.FEATURE_EXTRACTION: ("BertModel", "BertConfig", _BERT),
    HuggingFaceTask.FILL_MASK: ("BertForMaskedLM", "BertConfig", _BERT),
    HuggingFaceTask.IMAGE_CLASSIFICATION: ("ViTForImageClassification", "ViTConfig", _VIT),
    HuggingFaceTask.IMAGE_SEGMENTATION: ("SegformerForSemanticSegmentation", "SegformerConfig", _SEGFORMER),
    HuggingFaceTask.OBJECT_DETECTION: ("YolosForObjectDetection", "YolosConfig", _YOLOS),
    HuggingFaceTask.QUESTION_ANSWERING: ("BertForQuestionAnswering", "BertConfig", {**_BERT, "num_labels": 2}),
    HuggingFaceTask.TEXT_CLASSIFICATION: ("BertForSequenceClassification", "BertConfig", _BERT),
    HuggingFaceTask.TOKEN_CLASSIFICATION: ("BertForTokenClassification", "BertConfig", _BERT),
}
"""A class, its class of configurations, and a configuration for each task."""


def input_of(task: HuggingFaceTask) -> TensorSpec:
    """What the checkpoint of a task takes."""
    return IMAGE if MODELS[task][1] != "BertConfig" else TEXT


def save(directory: Path, task: HuggingFaceTask = HuggingFaceTask.TEXT_CLASSIFICATION, **options: Any) -> Any:
    """Write a checkpoint, with transformers' options of writing. Returns its model in eval mode."""
    model_class, config_class, fields = MODELS[task]
    torch.manual_seed(7)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**fields)).eval()
    model.save_pretrained(directory, **options)
    return model
