"""Each folder imports what its `__init__.py` says: "May import `a`, `b.c` and `d`.", or "May import no other folder.".

A name is that of a package, or relative to the folder's own package. It stands for a module, or for a folder with all
in it; the name of a folder above stands for the modules of that folder only. A folder may also import what its parent
folder may import, and everything below itself.
"""

import ast
import re
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import PACKAGES, ROOT, dotted, folders, imports, syntax

NAME: Final = r"`([\w.]+)`"
SENTENCE: Final = re.compile(rf"May import (no other (?:folder|package)|{NAME}(?:(?:, {NAME})* and {NAME})?)\.(?: |$)")
PACKAGE_NAMES: Final = {package.name for package in PACKAGES}
FOLDERS: Final = [pytest.param(folder, id=dotted(folder)) for folder in folders()]


def own_permissions(folder: Path) -> list[str]:
    """The dotted names of what a folder itself says that it may import."""
    said = " ".join((ast.get_docstring(syntax(folder / "__init__.py")) or "").split())
    sentences = list(SENTENCE.finditer(said))
    assert len(sentences) == said.count("May import") == 1, (
        f"write one sentence such as: May import `a` and `b`.\n{said}"
    )
    package = dotted(folder).partition(".")[0]
    names = re.findall(NAME, sentences[0][0])
    return [name if name.partition(".")[0] in PACKAGE_NAMES else f"{package}.{name}" for name in names]


def parent_permissions(folder: Path) -> list[str]:
    """What the folders above say that they may import."""
    parents = [parent for parent in folder.parents if (parent / "__init__.py").exists()]
    return [name for parent in parents for name in own_permissions(parent)]


def permits(name: str, module: str, folder: str) -> bool:
    """Whether the permission `name` lets the folder import the module."""
    if folder.startswith(f"{name}."):
        return module.rpartition(".")[0] == name
    return module == name or module.startswith(f"{name}.")


def imported_from_elsewhere(folder: Path, files: list[Path]) -> set[str]:
    """The modules outside of the folder that its files import."""
    inside = dotted(folder)
    found = {module for file in files for module in imports(file)}
    return {module for module in found if module != inside and not module.startswith(f"{inside}.")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_it_says(folder: Path) -> None:
    permitted = own_permissions(folder) + parent_permissions(folder)
    imported = imported_from_elsewhere(folder, list(folder.glob("*.py")))

    assert not {m for m in imported if not any(permits(name, m, dotted(folder)) for name in permitted)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_only_what_it_imports(folder: Path) -> None:
    imported = imported_from_elsewhere(folder, list(folder.rglob("*.py")))
    own, inherited = own_permissions(folder), parent_permissions(folder)
    repeated = [n for n in own if any(permits(above, n, dotted(folder)) for above in inherited)]

    assert not [n for n in own if not any(permits(n, m, dotted(folder)) for m in imported)], "nothing imports these"
    assert not repeated, "the parent folder says these"
    assert own == sorted(set(own)), "write them once, in alphabetical order"


def test_the_rule_covers_all_folders_and_finds_what_it_should() -> None:
    planner = ROOT / "planner/partita_planner"

    assert {dotted(package) for package in PACKAGES} == PACKAGE_NAMES
    assert "partita_planner.solver.deadline" in imports(planner / "configurations/heuristic.py")
    assert permits("partita_operator.cli", "partita_operator.cli.output", "partita_operator.cli.cluster")
    assert not permits("partita_operator.cli", "partita_operator.cli.offline.plan", "partita_operator.cli.cluster")
    assert permits("partita_operator.kube", "partita_operator.kube.client", "partita_operator.cli.cluster")
    assert not permits("partita_operator.kube", "partita_operator.kubelet", "partita_operator.cli.cluster")
