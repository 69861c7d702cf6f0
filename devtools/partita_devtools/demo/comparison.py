"""Compares answers with those of the whole models, and finds out whether rounding at cuts explains a difference."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partita_devtools.demo.result import Verification

if TYPE_CHECKING:
    # Needs torch, which only comparisons of real models need.
    from partita_runtime.load.rounded_models import ModuleAnswer, RoundedAnswer

Tensors = Mapping[str, NDArray[Any]]

Rounded = Callable[[int], Iterable["RoundedAnswer"]]
"""By number of a request: what the models answer as plans cut them."""


def compare(given: Sequence[Tensors], expected: Sequence[Tensors], tolerance: float, rounded: Rounded) -> Verification:
    """Compare answers tensor by tensor, without the tensors of `given` that contain only row numbers.

    A model may amplify the rounding of the models before it. So `rounded` is called for each request whose answer is
    off by more than the tolerance. Rounding explains the difference if two things hold within the same tolerance: each
    row of the answer is that of the cut models, and each cut model answers like the whole one on the same input.
    """
    explained, differences, errors, values = [], [], [0.0], 0
    for number, (answer, want) in enumerate(zip(given, expected, strict=True)):
        compared = {name: tensor for name, tensor in want.items() if _same_shape(answer.get(name), tensor)}
        values += sum(tensor.size for tensor in compared.values())
        error = max((_error(answer[name], tensor) for name, tensor in compared.items()), default=0.0)
        sentences = _differences(answer, want, tolerance)
        if sentences:
            explanation = _explanation(answer, rounded(number), tolerance)
            if explanation.error <= tolerance:
                error = explanation.error
                closeness = f"and by {error:.2%} from that of the models with the plan's cuts"
                explained += [f"request {number}: {sentence}, {closeness}" for sentence in sentences]
            else:
                differences += [f"request {number}: {sentence}" for sentence in (*sentences, *explanation.faults)]
        errors.append(error)
    return Verification(len(expected), values, max(errors), tolerance, tuple(differences), tuple(explained))


def _differences(answer: Tensors, want: Tensors, tolerance: float) -> list[str]:
    sentences = []
    for name, tensor in want.items():
        rows = answer.get(name)
        if rows is None or rows.shape != tensor.shape:
            found = "nothing" if rows is None else list(rows.shape)
            sentences.append(f"{name} is {found}, but the whole models give {list(tensor.shape)}")
        elif not (error := _error(rows, tensor)) <= tolerance:
            sentences.append(f"{name} is off by {error:.2%} of its largest value")
    surplus = _surplus(answer, want)
    return sentences + [f"{name} has {len(answer[name])} rows, but the whole models give none" for name in surplus]


@dataclass(frozen=True)
class _Explanation:
    error: float
    """Largest difference from the closest answers of the cut models; infinite if none has the same rows."""
    faults: tuple[str, ...]
    """Cut models that do not answer like the whole ones, in sentences."""


def _explanation(answer: Tensors, rounded: Iterable["RoundedAnswer"], tolerance: float) -> _Explanation:
    """Each row may have come through other pipelines, so each has its own closest answer."""
    faults: dict[str, None] = {}
    least: dict[str, NDArray[np.float64]] = {}
    for candidate in rounded:
        faulty = [sentence for module in candidate.modules if (sentence := _fault(module, tolerance))]
        faults |= dict.fromkeys(faulty)
        want = candidate.tensors
        if faulty or _surplus(answer, want) or not all(_same_shape(answer.get(n), t) for n, t in want.items()):
            continue
        for name, tensor in want.items():
            errors = _row_errors(answer[name], tensor)
            least[name] = np.fmin(least[name], errors) if name in least else errors
        if (error := _largest(least.values())) <= tolerance:
            return _Explanation(error, ())
    return _Explanation(_largest(least.values()) if least else np.inf, tuple(faults))


def _fault(module: "ModuleAnswer", tolerance: float) -> str:
    """The difference between a cut model and the whole one, if it is more than rounding; else nothing."""
    error = _largest(_row_errors(r[None], w[None]) for r, w in zip(module.rounded, module.whole, strict=True))
    if error <= tolerance:
        return ""
    blocks = " and ".join(map(str, module.cuts))
    return (
        f"{module.module} with cuts before block {blocks} is off by {error:.2%} from the whole model on the same input"
    )


def _surplus(answer: Tensors, want: Tensors) -> list[str]:
    return [name for name, rows in answer.items() if name not in want and not name.endswith(".index") and len(rows)]


def _same_shape(given: NDArray[Any] | None, expected: NDArray[Any]) -> bool:
    return given is not None and given.shape == expected.shape


def _error(given: NDArray[Any], expected: NDArray[Any]) -> float:
    """Largest difference, as a share of the largest magnitude in the tensor."""
    return _largest([_row_errors(given, expected)])


def _row_errors(given: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    if not expected.size:
        return np.zeros(1)
    if expected.dtype == np.object_:  # texts are equal or not
        largest, off = 1.0, (given != expected).astype(np.float64)
    else:
        largest, off = float(np.abs(expected).max()), np.abs(given.astype(np.float64) - expected)
    errors: NDArray[np.float64] = off.reshape(len(expected), -1).max(axis=1) / (largest or 1.0)
    return errors


def _largest(errors: Iterable[NDArray[np.float64]]) -> float:
    return float(np.concatenate([*errors]).max())
