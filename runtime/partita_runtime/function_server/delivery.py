"""Copies what runs functions into a directory that containers of other images share.

    python -m partita_runtime.function_server.delivery DIRECTORY

So these images need nothing of Partita, and frontends and containers always speak the same protocol.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

import partita_runtime.functions

_NAME: Final = "partita_runtime.function_server"
PACKAGE: Final = "partita_function_server"
"""The name of this package there: another version of Partita, in the image, does not take its place."""
_PROGRAM: Final = f"""\
import os, sys
here, sys.path[0] = sys.path[0], os.getcwd()
sys.path.append(here)
from {PACKAGE}.server import main
main(sys.argv[1])
"""
"""Imports modules of the image first, also those in its working directory."""


def deliver(directory: Path) -> None:
    """Write the program, as `python3 DIRECTORY` runs it."""
    package, functions = directory / PACKAGE, directory / "partita_runtime"
    for made in (package, functions):
        made.mkdir(exist_ok=True)
    for module in Path(__file__).parent.glob("*.py"):
        (package / module.name).write_text(module.read_text().replace(_NAME, PACKAGE))
    shutil.copy(partita_runtime.functions.__file__, functions)
    (directory / "__main__.py").write_text(_PROGRAM)


if __name__ == "__main__":
    deliver(Path(sys.argv[1]))
