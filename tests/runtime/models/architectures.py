"""Small models of well-known architectures, with weights that make their answers differ from zero."""

from collections.abc import Callable

import torch
import transformers as hf

from partita_api.session.module import TensorSpec

IMAGE = TensorSpec(shape=(3, 64, 64))

_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 24], "depths": [1, 1, 1]}
_TRANSFORMER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "patch_size": 16,
}


def _detr() -> torch.nn.Module:
    backbone = hf.ResNetConfig(**_RESNET, out_features=["stage3"])
    half = {f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    wide = {f"{part}_ffn_dim": 16 for part in ("encoder", "decoder")}
    config = hf.DetrConfig(
        use_timm_backbone=False, backbone=None, backbone_config=backbone, d_model=16, num_queries=5, **half, **wide
    )
    return hf.DetrForObjectDetection(config)


def _mobilevit() -> torch.nn.Module:
    config = hf.MobileViTConfig(
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], num_attention_heads=2
    )
    return hf.MobileViTForImageClassification(config)


ARCHITECTURES: dict[str, Callable[[], torch.nn.Module]] = {
    "resnet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**_RESNET, num_labels=10)),
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**_TRANSFORMER, image_size=64)),
    "yolos": lambda: hf.YolosForObjectDetection(
        hf.YolosConfig(**_TRANSFORMER, image_size=[64, 64], num_detection_tokens=5)
    ),
    "detr": _detr,
    "regnet": lambda: hf.RegNetForImageClassification(
        hf.RegNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], groups_width=4)
    ),
    "convnext": lambda: hf.ConvNextForImageClassification(
        hf.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1])
    ),
    "efficientnet": lambda: hf.EfficientNetForImageClassification(
        hf.EfficientNetConfig(image_size=64, width_coefficient=0.25, depth_coefficient=0.1, hidden_dim=320)
    ),
    "mobilevit": _mobilevit,
}


def lively(name: str) -> torch.nn.Module:
    """The architecture in eval mode, with random weights and the statistics that batch normalisation learns."""
    torch.manual_seed(20)
    model = ARCHITECTURES[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
        model.train()(torch.randn(4, *IMAGE.shape))
    return model.eval()
