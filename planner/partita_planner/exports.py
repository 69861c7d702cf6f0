"""Exports of a package that are imported on first use, so that importing one module does not import the solver."""

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__`: `modules` names, for each export, the module of the package that defines it."""

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        exported: object = getattr(import_module(f"{package}.{modules[name]}"), name)
        return exported

    return load
