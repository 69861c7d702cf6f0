"""The examples are imported as their users' clusters import them: with `examples/` on the path.

Their networks take seconds to import, so tests import them when they run.
"""

import sys
from pathlib import Path

from tests.operator.kubectl import cluster_with_crds

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

cluster = cluster_with_crds
