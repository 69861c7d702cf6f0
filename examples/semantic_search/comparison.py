"""What the session answers for a text, what the model answers in transformers, and how much they differ.

The reference takes one text at a time, without padding, by the tokenizer and the model of transformers and the pooling
that the model's README prescribes. It shares no code with the session.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import httpx
import numpy as np
import torch
import transformers
from checks.client import ask
from numpy.typing import NDArray

from semantic_search.corpus import FOLDER
from semantic_search.models import packaged

LEAST_COSINE: Final = 0.999
_WINDOW: Final = 254
_CLS, _SEP = 101, 102


@dataclass(frozen=True)
class Result:
    """What was found for a text."""

    numbers: Sequence[int]
    """The passages' numbers in the corpus from 0, the best first."""
    scores: Sequence[float]
    vector: NDArray[np.float32]
    """That of the text."""


@dataclass(frozen=True)
class Comparison:
    """Two results for one text."""

    served: Result
    reference: Result

    @property
    def cosine(self) -> float:
        """Of the two vectors of the text."""
        a, b = self.served.vector.astype(float), self.reference.vector.astype(float)
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    @property
    def is_equal(self) -> bool:
        """Whether both found the same passages in the same order, by almost the same vector."""
        return [*self.served.numbers] == [*self.reference.numbers] and self.cosine > LEAST_COSINE


def served_result(client: httpx.Client, url: str, text: str) -> Result:
    """What the session at `url` finds. Raises NotAnsweredError."""
    answer = ask(client, url, {"input": np.array([[text.encode()]], np.object_)})
    return Result(
        numbers=answer["ranking.numbers"][0].tolist(),
        scores=answer["ranking.scores"][0].tolist(),
        vector=answer["ranking.vector"][0],
    )


def reference_result(text: str, count: int) -> Result:
    """What transformers finds, of `count` passages."""
    tokenizer, _ = _transformers()
    pieces = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    windows = [_states([_CLS, *pieces[i : i + _WINDOW], _SEP]) for i in range(0, len(pieces), _WINDOW)]
    mean = sum(_pooled(window) * len(window) for window in windows)
    vector = mean / mean.norm()
    similarities = torch.stack([_pooled(passage) for passage in _passages()]) @ vector
    nearest = similarities.sort(descending=True, stable=True).indices[:count].tolist()
    scores = {number: _late(windows, _passages()[number]) for number in nearest}
    best = sorted(nearest, key=lambda number: -scores[number])
    return Result(best, [scores[number] for number in best], vector.numpy())


@cache
def passages() -> tuple[str, ...]:
    """The corpus."""
    return tuple((FOLDER / "corpus.txt").read_text().splitlines())


@cache
def _passages() -> Sequence[torch.Tensor]:
    tokenizer, _ = _transformers()
    return [_states(tokenizer.encode(passage, split_special_tokens=True)) for passage in passages()]


@cache
def _transformers() -> tuple[Any, Any]:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(packaged())
    return transformers.AutoTokenizer.from_pretrained(packaged()), model.eval()


@torch.no_grad()
def _states(pieces: Sequence[int]) -> torch.Tensor:
    """The model's last hidden states `[pieces, 384]`."""
    _, model = _transformers()
    states: torch.Tensor = model(input_ids=torch.tensor([pieces])).last_hidden_state[0]
    return states


def _pooled(states: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(states.mean(0), dim=0)


def _late(windows: Sequence[torch.Tensor], passage: torch.Tensor) -> float:
    a = torch.nn.functional.normalize(torch.cat([window[1:-1] for window in windows]), dim=1)
    b = torch.nn.functional.normalize(passage[1:-1], dim=1)
    return float((a @ b.T).amax(1).mean())
