"""The packages that some source files import, found without an import of them."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def third_party_imports(directory: Path) -> tuple[str, ...]:
    """What the modules in a directory import from third-party packages, as `module` or `module:name`.

    A name matters in packages that load their modules at the first use of a name, such as transformers. Imports within
    functions and files that are not Python are left out.
    """
    found: dict[str, None] = {}
    for file in sorted(directory.glob("*.py")):
        try:
            module = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            continue  # who imports it gets the error
        for name in _imports(module):
            top = name.partition(":")[0].partition(".")[0]
            is_own = top in (directory.name, "ray") or top.startswith("partita_")  # see the fork server
            if not is_own and top not in sys.stdlib_module_names:
                found[name] = None
    return tuple(found)


def _imports(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        match statement:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(name), names=names, level=0):
                yield from (f"{name}:{alias.name}" for alias in names if alias.name != "*")
