"""Notebooks as Jupyter runs them: cells in order, in one namespace."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

CLUSTER = "cluster"
"""Tag of the cells that need a cluster."""


@dataclass(frozen=True)
class Cell:
    """A cell of code."""

    id: str
    source: str
    tags: tuple[str, ...]
    is_clean: bool
    """Whether it is stored without results of an earlier run."""


@dataclass
class Notebook:
    """The code of a notebook, and what its cells have defined."""

    cells: tuple[Cell, ...]
    names: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        document = json.loads(path.read_text())
        assert document["nbformat"] == 4
        return cls(
            tuple(
                Cell(
                    cell["id"],
                    "".join(cell["source"]),
                    tuple(cell["metadata"].get("tags", ())),
                    is_clean=cell["outputs"] == [] and cell["execution_count"] is None,
                )
                for cell in document["cells"]
                if cell["cell_type"] == "code"
            )
        )

    def run(self, *, with_cluster: bool, replaced: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What each cell shows below itself, by id. Texts in cells may be `replaced`; each has to occur."""
        sources = {cell.id: cell.source for cell in self.cells if with_cluster or CLUSTER not in cell.tags}
        for old, new in (replaced or {}).items():
            assert any(old in source for source in sources.values()), old
            sources = {id: source.replace(old, new) for id, source in sources.items()}
        return {id: self._shown(source) for id, source in sources.items()}

    def _shown(self, source: str) -> Any:
        """The value of the last line, if it is an expression."""
        *body, last = ast.parse(source).body
        exec(compile(ast.Module(body, []), "<cell>", "exec"), self.names)
        if isinstance(last, ast.Expr):
            return eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.names)
        exec(compile(ast.Module([last], []), "<cell>", "exec"), self.names)
        return None
