"""Compares the answers of two versions to one request, tensor by tensor. Pure."""

from collections.abc import Mapping

import numpy as np

from partita_runtime.execution.executor import Array
from partita_runtime.serving.deploy.version_routes import ShadowRoute


def difference(ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: ShadowRoute) -> str:
    """How `theirs` differs from `ours`, in words; empty if it does not."""
    if ours.keys() != theirs.keys():
        return f"its outputs are {_listed(theirs)}, not {_listed(ours)}"
    found = [_of_tensor(name, array, theirs[name], tolerance) for name, array in ours.items()]
    return "; ".join(text for text in found if text)


def _of_tensor(name: str, ours: Array, theirs: Array, tolerance: ShadowRoute) -> str:
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"output {name!r} is {theirs.dtype} {list(theirs.shape)}, not {ours.dtype} {list(ours.shape)}"
    if ours.dtype.kind != "f":
        unequal = int(np.count_nonzero(ours != theirs))
        return f"output {name!r} differs in {unequal} of {ours.size} elements" if unequal else ""
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    near = np.isclose(other, one, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    if near.all():
        return ""
    with np.errstate(all="ignore"):
        absolute = np.abs(other - one)
        relative = absolute / np.abs(one)
    return (
        f"output {name!r} differs in {int(np.count_nonzero(~near))} of {ours.size} elements, at most by "
        f"{_most(absolute[~near]):.3g}, or {_most(relative[~near]):.3g} of the value"
    )


def _most(differences: Array) -> float:
    """Differences from what is not a number are larger than all others."""
    return float(np.where(np.isnan(differences), np.inf, differences).max())


def _listed(names: Mapping[str, Array]) -> str:
    return ", ".join(sorted(names)) or "none"
