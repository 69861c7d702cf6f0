"""How a replica of a stage moves to another node.

Serve can replace a replica, but cannot move one. So the replica reports that it is unhealthy. Serve then starts another
one and gives the first some time to end. The first replica serves until the new one has announced itself.
"""

from typing import Final

from partita_api.meta import SpecModel

STAND_IN_SECONDS: Final = 300.0
"""How long a replica waits for its replacement: as long as a model may take to load."""


class Relocation(SpecModel):
    """The `user_config` of a stage: the last replica that was moved, and the operator's notes about it."""

    replica: str
    """Its unique id."""
    others: int
    """How many other replicas of the stage must have announced themselves before it ends."""
    since: int
    """When it was chosen (Unix seconds)."""
    unevenness: int
    """Sum of the squares of the numbers of replicas on each node, before the move."""
    without_effect: int = 0
    """How many moves in a row before it have not reduced the unevenness."""
    among: str
    """Digest of the nodes on which the stage can run, and of its number of replicas."""
