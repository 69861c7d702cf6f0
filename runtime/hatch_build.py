"""Build hook: HATCH_BUILD_HOOKS_ENABLE=true makes a wheel, or an editable installation, with the core compiled."""

import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledCore(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the scheduling core into the wheel, or, for an editable installation, beside its source."""

    PLUGIN_NAME = "custom"

    @cached_property
    def _built(self) -> tempfile.TemporaryDirectory[str]:
        """Has the compiled modules until the wheel is built."""
        return tempfile.TemporaryDirectory()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built."""
        runtime = Path(self.root) / "runtime"
        into = runtime if version == "editable" else Path(self._built.name)
        subprocess.run([sys.executable, runtime / "compile_core.py", "--into", into], check=True)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version != "editable":
            modules = [file for file in into.rglob("*") if file.suffix in (".so", ".pyd")]
            build_data["force_include"] |= {str(module): str(module.relative_to(into)) for module in modules}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called after it was built."""
        self._built.cleanup()
