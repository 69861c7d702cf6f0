"""What a file of a model must not be able to do."""

import os
from pathlib import Path
from typing import Any


class Intruder:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.trace}",)
