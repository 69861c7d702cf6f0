"""Image classifiers of Hugging Face transformers, made from configurations, with weights drawn from a seed.

They take pixels as bytes, as cameras and decoders give them, and normalize them on the device.
"""

import torch
from torch import Tensor, nn
from transformers import (
    EfficientNetConfig,
    EfficientNetForImageClassification,
    PretrainedConfig,
    PreTrainedModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

SIZE, TINY_SIZE = 224, 64
"""Pixels to a side of an image, for the models and for their tiny versions."""
MEAN, DEVIATION = 127.5, 58.4
"""Of the bytes of an image, about as in ImageNet."""


class Logits(nn.Module):
    """A classifier from bytes `[batch, 3, size, size]` to its logits."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """As nn.Module says."""
        logits: Tensor = self.model((pixels.float() - MEAN) / DEVIATION).logits
        return logits


def resnet(tiny: bool = False) -> nn.Module:
    """ResNet-50; tiny: with an eighth of its width, and one block in each of its stages."""
    config = ResNetConfig(num_labels=1000)
    if tiny:
        config = ResNetConfig(num_labels=10, embedding_size=8, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1])
    return _made(ResNetForImageClassification, config)


def efficientnet(tiny: bool = False) -> nn.Module:
    """EfficientNet-B0; tiny: with a quarter of its width and a third of its depth."""
    config = EfficientNetConfig(
        image_size=SIZE, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=1000
    )
    if tiny:
        config = EfficientNetConfig(
            image_size=TINY_SIZE, width_coefficient=0.25, depth_coefficient=0.33, hidden_dim=320, num_labels=10
        )
    return _made(EfficientNetForImageClassification, config)


def vit(tiny: bool = False) -> nn.Module:
    """ViT-B/16; tiny: with a twelfth of its width, and two of its layers."""
    config = ViTConfig(image_size=SIZE, num_labels=1000)
    if tiny:
        config = ViTConfig(
            image_size=TINY_SIZE,
            hidden_size=64,
            intermediate_size=256,
            num_attention_heads=2,
            num_hidden_layers=2,
            num_labels=10,
        )
    return _made(ViTForImageClassification, config)


def _made(kind: type[PreTrainedModel], config: PretrainedConfig) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = kind(config)
        for module in model.modules():  # small weights would let activations fade into numbers that CPUs are slow with
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        return Logits(model).eval()
