"""How long tests wait for what must happen in the end."""

from typing import Final

PATIENCE_SECONDS: Final = 300.0
"""Far more than anything takes on a slow and busy machine. A wait ends as soon as its condition holds."""
