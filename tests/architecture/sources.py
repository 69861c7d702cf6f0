"""The tree as the architecture tests see it: source files, their folders, and the names that they define."""

import ast
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SDK: Final = ROOT / "operator/partita"
PACKAGES: Final = (
    ROOT / "crds/partita_api",
    ROOT / "planner/partita_planner",
    ROOT / "runtime/partita_runtime",
    ROOT / "profiling-jobs/partita_profiling",
    ROOT / "operator/partita_operator",
    SDK,
    ROOT / "devtools/partita_devtools",
)


def source_files() -> list[Path]:
    """All modules of the packages."""
    return sorted(file for package in PACKAGES for file in package.rglob("*.py"))


def files_of_tests() -> list[Path]:
    """All modules of the tests."""
    return sorted((ROOT / "tests").rglob("*.py"))


def folders() -> list[Path]:
    """All packages and their subpackages."""
    return sorted({file.parent for file in source_files()})


def documents() -> list[Path]:
    """All pages for people."""
    return [page for folder in ("", "docs/**/", "examples/**/") for page in sorted(ROOT.glob(f"{folder}*.md"))]


@cache
def syntax(file: Path) -> ast.Module:
    """The parsed module."""
    return ast.parse(file.read_text())


def dotted(path: Path) -> str:
    """The name under which a module or a folder is imported."""
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(file: Path) -> frozenset[str]:
    """The modules of Partita that a module imports, at its top or in a function."""
    found: set[str] = set()
    for node in ast.walk(syntax(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, file
            assert node.level == 0, f"{file}: write the whole name of {node.module}"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (members & modules()) or {node.module}
    return frozenset(name for name in found if name.partition(".")[0] in {package.name for package in PACKAGES})


@cache
def modules() -> frozenset[str]:
    """The dotted names of all modules and folders of the packages."""
    return frozenset(dotted(file) for file in source_files())


def definitions(file: Path) -> set[str]:
    """The names that a module defines at its top level."""
    found: set[str] = set()
    for node in syntax(file).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def comments(file: Path) -> Iterator[str]:
    """Every comment of a module."""
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def docstrings(file: Path) -> Iterator[str]:
    """Every docstring of a module, also those below variables and fields."""
    for node in ast.walk(syntax(file)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text


def texts(file: Path) -> Iterator[str]:
    """Every string of a module: docstrings, messages, and the fixed parts of formatted strings."""
    for node in ast.walk(syntax(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def names(file: Path) -> Iterator[str]:
    """Every name that a module gives to something: itself, classes, functions, parameters, attributes, variables."""
    yield file.stem
    for node in ast.walk(syntax(file)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> list[str]:
    """The words of an identifier in lower case: `HeldModels` and `held_models` are `held` and `models`."""
    return [word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", part)]
