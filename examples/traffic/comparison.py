"""The classes that the session serves, those of its networks in this process, and how many differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import httpx
import numpy as np
import torch
from checks.client import ask
from numpy.typing import NDArray
from torch import nn

from traffic.functions import crop
from traffic.models import detector, person_classifier, vehicle_classifier

LEAST_EQUAL: Final = 0.95
"""The least share of the crops that have the same class."""
Classes = Mapping[str, Sequence[int]]
"""Of the crops of one photograph, by classifier."""


@dataclass(frozen=True)
class Comparison:
    """Two results for one photograph."""

    served: Classes
    plain: Classes

    @property
    def crops(self) -> int:
        """Crops that the networks find here."""
        return sum(map(len, self.plain.values()))

    @property
    def equal(self) -> int:
        """Those of them that have the same class; none of a classifier whose crops are more or fewer."""
        return sum(
            sum(a == b for a, b in zip(self.served[name], classes, strict=True))
            for name, classes in self.plain.items()
            if len(self.served[name]) == len(classes)
        )


def served_classes(client: httpx.Client, url: str, photograph: NDArray[np.float32]) -> Classes:
    """The classes that the session at `url` finds. Raises NotAnsweredError."""
    answer = ask(client, url, {"input": photograph[None]})
    return {name: answer[name].argmax(-1).tolist() for name in _networks() if name != "detector"}


@torch.no_grad()
def plain_classes(photograph: NDArray[np.float32]) -> Classes:
    """The classes that the networks find."""
    networks = _networks()
    detections = networks["detector"](torch.from_numpy(photograph)[None])[0].numpy()
    crops = crop({"input": photograph}, {"detector": [detections]})
    return {name: [_class(networks[name], image) for image in images] for name, images in crops.items()}


def _class(network: nn.Module, image: NDArray[np.float32]) -> int:
    return int(network(torch.from_numpy(image)[None]).argmax())


@cache
def _networks() -> Mapping[str, nn.Module]:
    return {"detector": detector(), "vehicle": vehicle_classifier(), "person": person_classifier()}
