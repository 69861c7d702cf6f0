"""Hostile .pt2 files: real files of torch.export with other members or other values, and how they are read."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch.export import Dim

from partita_api.session.module import ModelSource
from partita_runtime.models.source import load_model

PROGRAM = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"
CONSTANTS = "data/constants/model_constants_config.json"
SAMPLE_INPUTS = "data/sample_inputs/model.pt"
_WRITTEN_BY_TORCH = ("byteorder", ".data/version", ".data/serialization_id")

INPUT = torch.tensor([[1.0, -2.0], [3.0, 4.0], [5.0, 6.0]])


class Branches(torch.nn.Module):
    """Small, but with parameters, a buffer, a constant, arithmetic on the batch size, and two named outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.eye_(self.head.weight)
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.offsets = torch.arange(2.0)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            positive = x.relu()
        flat = torch.nn.functional.gelu(self.head(positive) * self.scale, approximate="tanh").reshape(2 * x.shape[0])
        return {"flat": flat + self.offsets.sum(), "zeros": torch.zeros(x.shape[0], 1)}


def exported_branches() -> torch.export.ExportedProgram:
    batch = Dim("batch", min=1, max=1024)
    return torch.export.export(Branches(), (torch.ones(2, 2),), dynamic_shapes=({0: batch},))


class ExportedArchive:
    """The members of a .pt2 file."""

    def __init__(self, members: Mapping[str, bytes]) -> None:
        self._members = dict(members)

    @classmethod
    def of(cls, program: torch.export.ExportedProgram) -> "ExportedArchive":
        content = io.BytesIO()
        torch.export.save(program, content)
        reader = torch._C.PyTorchFileReader(io.BytesIO(content.getvalue()))
        names = [name for name in reader.get_all_records() if name not in _WRITTEN_BY_TORCH]
        return cls({name: reader.get_record(name) for name in names})

    def copy(self) -> "ExportedArchive":
        return ExportedArchive(self._members)

    def document(self, name: str) -> Any:
        return json.loads(self._members[name])

    def with_member(self, name: str, content: bytes) -> Self:
        self._members[name] = content
        return self

    def with_changed(self, name: str, change: Callable[[Any], object]) -> Self:
        """One of the JSON documents after `change`, which changes it in place."""
        document = self.document(name)
        change(document)
        return self.with_member(name, json.dumps(document).encode())

    def written(self, path: Path) -> Path:
        """The file, written by torch."""
        writer = torch._C.PyTorchFileWriter(str(path))
        writer.set_min_version(6)  # as torch.export.save
        for name, content in self._members.items():
            writer.write_record(name, content, len(content))
        writer.write_end_of_file()
        return path


def with_partita(path: Path, **fields: Any) -> dict[str, torch.Tensor]:
    """The answer of a program that Partita has read."""
    program = load_model(ModelSource(file=str(path), **fields))
    assert isinstance(program, torch.export.ExportedProgram)
    answer: dict[str, torch.Tensor] = program.module()(INPUT)
    return answer
