"""The shape of the tree: small folders that say what they hold, files of one subject, names that say something."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT, SDK, definitions, folders, source_files, syntax

MOST_ENTRIES = 16
MOST_LINES = 450
MEANINGLESS = {"utils", "util", "helpers", "misc", "common", "manager"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


TESTS = sorted({file.parent for file in (ROOT / "tests").rglob("*.py")})


@pytest.mark.parametrize("folder", [*folders(), *TESTS], ids=relative)
def test_a_folder_has_few_entries(folder: Path) -> None:
    entries = {entry.name for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
    entries -= {"__init__.py", "__main__.py", "conftest.py", "__pycache__"}

    assert len(entries) <= MOST_ENTRIES, entries


@pytest.mark.parametrize("folder", folders(), ids=relative)
def test_a_folder_says_what_lives_there(folder: Path) -> None:
    said = ast.get_docstring(syntax(folder / "__init__.py"))

    assert said is not None
    assert len(re.findall(r"\.(?:\s|$)", said)) >= 2, said


def test_no_file_is_too_long() -> None:
    lengths = {relative(file): file.read_text().count("\n") for file in source_files()}

    assert not {file: lines for file, lines in lengths.items() if lines > MOST_LINES}


def test_names_of_modules_say_something() -> None:
    assert not [relative(file) for file in source_files() if file.stem in MEANINGLESS]


def test_no_public_name_of_a_package_is_hidden_by_a_module() -> None:
    """`from package import name` would give the module or the function, depending on what was imported before."""
    hidden = {}
    for folder in folders():
        modules = {entry.stem for entry in folder.iterdir() if entry.suffix == ".py" or entry.is_dir()}
        stub = folder / "__init__.pyi"  # what the package exports with the first use
        face = stub if stub.exists() else folder / "__init__.py"
        exported = definitions(folder / "__init__.py") | set(_imported(face))
        if both := modules & exported - {"__init__"}:
            hidden[relative(folder)] = both

    assert not hidden


def test_a_class_name_is_defined_once() -> None:
    """The SDK's names are for users, who see no others."""
    defined: dict[str, list[str]] = defaultdict(list)
    for file in (file for file in source_files() if not file.is_relative_to(SDK)):
        for node in ast.walk(syntax(file)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(relative(file))

    assert not {name: files for name, files in defined.items() if len(files) > 1}


def _imported(file: Path) -> list[str]:
    return [
        alias.asname or alias.name
        for node in ast.walk(syntax(file))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
