"""A module whose entrypoints the platform does not allow: a variable shows that it was imported."""

import os
from typing import Any

os.environ["PARTITA_TEST_IMPORTED"] = "yes"


def model(**_: Any) -> None:
    """Never called."""
