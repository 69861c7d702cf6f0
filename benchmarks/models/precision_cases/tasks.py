"""What an example's answers are worth on its task, beside those of its package or of the plain model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from ocr.pictures import pictures
from rapidocr import RapidOCR
from semantic_search.comparison import Comparison as SearchComparison
from semantic_search.comparison import Result, reference_result
from semantic_search.questions import QUESTIONS
from speech.audio import recording
from speech.comparison import Comparison as SpeechComparison
from speech.comparison import package_result, served_result
from traffic.photos import photographs

from partita_runtime.execution.executor import Array
from partita_runtime.quality.metrics import distance

Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Of a session, for one sample."""
Scores = Mapping[str, float]

FOUND: Final = 8
"""Passages of a search."""
SPEECH: Final = 0.5
"""The probability from which on a window counts as speech."""


@dataclass(frozen=True)
class Task:
    """How the answers of an example are scored; `count` says of how many samples."""

    scored: Callable[[Answer, Answer, int], Scores]
    """Of the answers of a form, of those of the plain models, and the number of samples."""
    samples: int


def read_text(answer: Answer, _plain: Answer, count: int) -> Scores:
    """Character error rate, beside the text that the package reads."""
    different = characters = 0
    for picture in pictures(count):
        lines = [line.decode() for line in answer({"input": picture})["text.lines"][0]]
        expected = "\n".join(_package_text(picture.item()))
        different += distance("\n".join(lines), expected)
        characters += len(expected)
    return {"character error rate": different / characters, "characters": characters}


def searched(answer: Answer, _plain: Answer, count: int) -> Scores:
    """Recall and order of the passages that transformers finds, and how many questions have their passage first."""
    comparisons, right = [], 0
    for question, line in [*QUESTIONS.items()][:count]:
        found = answer({"input": np.array([question.encode()], np.object_)})
        numbers = found["ranking.numbers"][0].tolist()
        served = Result(numbers, found["ranking.scores"][0].tolist(), found["ranking.vector"][0])
        comparisons.append(SearchComparison(served, _reference(question)))
        right += numbers[0] == line - 1
    recalled = [len({*each.served.numbers} & {*each.reference.numbers}) / FOUND for each in comparisons]
    return {
        f"recall@{FOUND}": float(np.mean(recalled)),
        "other order": sum([*each.served.numbers] != [*each.reference.numbers] for each in comparisons),
        "other first": sum(each.served.numbers[0] != each.reference.numbers[0] for each in comparisons),
        "expected first": right / len(comparisons),
        "least cosine": min(each.cosine for each in comparisons),
    }


def heard(answer: Answer, _plain: Answer, count: int) -> Scores:
    """Windows on the same side of the threshold, and recordings with the same segments, beside the package's."""

    def ask(tensors: Mapping[str, Array]) -> Mapping[str, Array]:
        return answer({name: tensor[0] for name, tensor in tensors.items()})

    results = [SpeechComparison(served_result(ask, recording(n)), package_result(recording(n))) for n in range(count)]
    pairs = [
        (a >= SPEECH, b >= SPEECH)
        for each in results
        for a, b in zip(each.served.probabilities, each.package.probabilities, strict=True)
    ]
    return {
        "windows that agree": sum(a == b for a, b in pairs) / len(pairs),
        "other segments": sum([*each.served.segments] != [*each.package.segments] for each in results),
        "largest difference": max(each.difference for each in results),
    }


def classified(answer: Answer, plain: Answer, count: int) -> Scores:
    """Crops with the same class as by the plain models; where crops are more or fewer, none of them counts."""
    same = crops = 0
    for photograph in photographs(count, seed=5):
        found, expected = answer({"input": photograph}), plain({"input": photograph})
        for name in expected.keys() & {"vehicle", "person"}:  # without crops of a kind, there is no such tensor
            crops += len(expected[name])
            if name in found and len(found[name]) == len(expected[name]):
                same += int((found[name].argmax(-1) == expected[name].argmax(-1)).sum())
    return {"top-1": same / crops, "crops": crops}


TASKS: Final[Mapping[str, Task]] = {
    "ocr": Task(read_text, 11),
    "semantic_search": Task(searched, len(QUESTIONS)),
    "speech": Task(heard, 4),
    "traffic": Task(classified, 40),
}


@cache
def _package() -> RapidOCR:
    return RapidOCR(params={"Global.log_level": "critical"})


@cache
def _package_text(picture: bytes) -> Sequence[str]:
    return tuple(_package()(picture).txts or ())


@cache
def _reference(question: str) -> Result:
    return reference_result(question, FOUND)
