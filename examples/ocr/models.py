"""The networks of the ocr application: they are in the package rapidocr, as ONNX files.

Inputs are padded with `padding.PADDING` on the right and at the bottom. This changes no answer.
"""

import importlib.util
from pathlib import Path
from typing import Final

import onnx
from onnx import ModelProto, TensorProto, helper
from torch import nn

from ocr.padding import indifferent_to_padding
from partita_runtime.models.onnx.module import onnx_module

FILES: Final = {
    "detector": "PP-OCRv6_det_small",
    "classifier": "ch_ppocr_mobile_v2.0_cls_mobile",
    "recognizer": "PP-OCRv6_rec_small",
}


def detector() -> nn.Module:
    """Where text is: `[batch, 3, height, width]` to probabilities `[batch, 1, height, width]`.

    Height and width are multiples of 32.
    """
    padded, _ = indifferent_to_padding(original("detector"))
    return onnx_module(padded)


def classifier() -> nn.Module:
    """Whether a line is upside down: `[batch, 3, 48, 192]` to probabilities `[batch, 2]` of 0 and of 180 degrees."""
    return onnx_module(original("classifier"))


def recognizer() -> nn.Module:
    """The characters of a line: `[batch, 3, 48, width]` to two tensors `[batch, positions]`.

    They are the most probable character at each position, as its number, and its probability. Padding has the number
    0, like the blank.
    """
    padded, mask = indifferent_to_padding(original("recognizer"))
    padded.graph.node.extend(
        [
            helper.make_node("Squeeze", [mask], ["is_position"], axes=[1, 2]),
            helper.make_node("Cast", ["is_position"], ["is_position/number"], to=TensorProto.INT64),
            helper.make_node("Mul", ["characters", "is_position/number"], ["characters/pixels"]),
        ]
    )
    padded.graph.output[0].name = "characters/pixels"
    return onnx_module(padded)


def original(name: str) -> ModelProto:
    """The package's detector, classifier or recognizer.

    The recognizer answers with the most probable character at each position, as its number, and its probability. The
    file's own answer has the probabilities of all 18,710 characters, thousands of times as many bytes.
    """
    model = packaged(FILES[name])
    if name != "recognizer":
        return model
    (probabilities,) = (output.name for output in model.graph.output)
    model.graph.node.extend(
        [
            helper.make_node("ArgMax", [probabilities], ["characters"], axis=2, keepdims=0),
            helper.make_node("ReduceMax", [probabilities], ["scores"], axes=[2], keepdims=0),
        ]
    )
    del model.graph.output[:]
    model.graph.output.extend(
        [
            helper.make_tensor_value_info("characters", TensorProto.INT64, ["batch", "positions"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "positions"]),
        ]
    )
    return model


def characters() -> list[str]:
    """The characters that the recognizer knows by their numbers, from 1 on."""
    entries = packaged(FILES["recognizer"]).metadata_props
    (found,) = (entry.value for entry in entries if entry.key == "character")
    return found.splitlines()


def packaged(name: str) -> ModelProto:
    """A network in the package rapidocr."""
    package = importlib.util.find_spec("rapidocr")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the package rapidocr is missing here; install it: pip install rapidocr")
    return onnx.load(str(Path(package.origin).parent / "models" / f"{name}.onnx"))
