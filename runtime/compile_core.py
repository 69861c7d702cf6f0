"""Compile the scheduling core with mypyc: the same source, as extension modules.

    python runtime/compile_core.py [--into FOLDER] [--optimization 3]

FOLDER gets the extension modules at their places in the package `partita_runtime`, beside which Python prefers them to
the source; by default that is where the source is. Needs a C compiler, mypy[mypyc] and setuptools.
"""

import argparse
import os
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = Path("partita_runtime/scheduling")
INTERPRETED: Final = {"__init__.py", "events.py", "plan.py", "signals.py"}
"""Data only: pydantic models, dataclasses with slots, named tuples. mypyc gains nothing there, or cannot do it."""


def compile_core(into: Path, optimization: str = "3") -> None:
    """Put the compiled core into a folder that is, or is like, the one with `partita_runtime` in it."""
    from mypyc.build import mypycify  # type: ignore[import-untyped, unused-ignore]
    from setuptools import Distribution

    into = into.resolve()
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        shutil.copytree(ROOT / "runtime" / PACKAGE, PACKAGE, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(ROOT / "runtime/partita_runtime/__init__.py", PACKAGE.parent)
        os.environ["MYPYPATH"] = str(ROOT / "crds")
        files = [str(file) for file in sorted(PACKAGE.rglob("*.py")) if file.name not in INTERPRETED]
        options = ["--config-file=", "--strict", "--ignore-missing-imports", "--no-warn-unused-ignores"]
        options += ["--allow-subclassing-any", "--allow-untyped-decorators", "--follow-imports=silent"]
        extensions = mypycify([*options, *files], opt_level=optimization, group_name="partita_scheduling")
        if os.name == "posix":
            for extension in extensions:  # what nobody outside calls can be inlined
                extension.extra_compile_args.append("-fvisibility=hidden")
        command = Distribution({"name": "partita", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(into), "objects"
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "runtime")
    parser.add_argument("--optimization", choices=["0", "1", "2", "3"], default="3", help="of the C compiler")
    arguments = parser.parse_args()
    compile_core(arguments.into, arguments.optimization)
