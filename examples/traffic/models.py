"""The networks of the traffic application, each a `torch.nn.Module` from one image tensor to one result tensor.

Architectures are those of Hugging Face transformers; weights are drawn from a seed, so that nothing is
downloaded and every process that builds a model holds the same one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn
from transformers import (
    MobileViTConfig,
    MobileViTForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    YolosConfig,
    YolosForObjectDetection,
)

from traffic.labels import DETECTOR_LABELS, PERSON_LABELS, VEHICLE_LABELS

IMAGE_SIZE: Final = 224
CROP_SIZE: Final = 128
QUERIES: Final = 48


def detector(seed: int = 29, image_size: int = IMAGE_SIZE) -> nn.Module:
    """A YOLOS detector: `[batch, 3, image_size, image_size]` to `[batch, 48, 4 + classes + 1]`.

    A row is one box (centre x, centre y, width, height; fractions of the image), then the logits of
    DETECTOR_LABELS and of "nothing here".
    """
    config = YolosConfig(
        image_size=[image_size, image_size],
        hidden_size=96,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=192,
        num_detection_tokens=QUERIES,
        num_labels=len(DETECTOR_LABELS),
        use_mid_position_embeddings=False,
    )
    with _seeded(seed):
        model = YolosForObjectDetection(config)
        embeddings = model.vit.embeddings
        _draw_weights(
            model,
            heads=(model.class_labels_classifier.layers[-1], model.bbox_predictor.layers[-1]),
            tokens=(embeddings.detection_tokens, embeddings.position_embeddings),
        )
    return _Detector(model).eval()


def vehicle_classifier(seed: int = 2) -> nn.Module:
    """A narrow ResNet-26: `[batch, 3, 128, 128]` to the logits of VEHICLE_LABELS."""
    config = ResNetConfig(
        embedding_size=16,
        hidden_sizes=[32, 64, 128, 256],
        depths=[2, 2, 2, 2],
        num_labels=len(VEHICLE_LABELS),
    )
    with _seeded(seed):
        model = ResNetForImageClassification(config)
        _draw_weights(model, heads=(model.classifier[-1],), gain=0.75)
    return _Classifier(model).eval()


def person_classifier(seed: int = 3, crop_size: int = CROP_SIZE) -> nn.Module:
    """A MobileViT half as wide as XXS: `[batch, 3, crop_size, crop_size]` to the logits of PERSON_LABELS."""
    config = MobileViTConfig(
        image_size=crop_size,
        hidden_sizes=[32, 40, 48],
        neck_hidden_sizes=[8, 8, 12, 24, 32, 40, 160],
        num_labels=len(PERSON_LABELS),
    )
    with _seeded(seed):
        model = MobileViTForImageClassification(config)
        _draw_weights(model, heads=(model.classifier,))
    return _Classifier(model).eval()


class _Detector(nn.Module):
    def __init__(self, model: YolosForObjectDetection) -> None:
        super().__init__()
        self.model = model
        # Every image has the size that the position embeddings were made for.
        self.model.vit.embeddings.interpolation = _AsTheyAre()

    def forward(self, images: Tensor) -> Tensor:
        found = self.model(images)
        return torch.cat((found.pred_boxes, found.logits), dim=-1)


class _AsTheyAre(nn.Module):
    def forward(self, embeddings: Tensor, _size: tuple[int, int]) -> Tensor:
        return embeddings


class _Classifier(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images).logits
        return logits


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def _draw_weights(
    model: nn.Module, *, heads: Iterable[nn.Linear], tokens: Iterable[nn.Parameter] = (), gain: float = 1.0
) -> None:
    """Draw weights that let an untrained network tell its inputs apart.

    As transformers initialises them, signals die out on the way (MobileViT), all queries find the same box
    (YOLOS), and one class always wins. So: variance is kept from layer to layer, `tokens` differ from each
    other, and the rows of the last layers, `heads`, sum to zero, which takes away what all inputs share.
    `gain` scales what each batch normalisation lets through; below 1 it makes up for residual sums.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.constant_(module.weight, gain)
    for token in tokens:
        nn.init.normal_(token)
    for head in heads:
        head.weight -= head.weight.mean(dim=1, keepdim=True)
        head.weight *= 2.0
