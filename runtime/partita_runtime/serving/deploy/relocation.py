"""What a stage's replicas are told when one of them is to make place for another one on another node.

Serve knows how to start a replica anew, but not how to move one. So the one that is to go says that it is not well;
Serve starts another one in its place at once, and gives the first some time to end. It takes that time to go on
serving until the new one has announced itself.
"""

from typing import Final

from partita_api.meta import SpecModel

STAND_IN_SECONDS: Final = 300.0
"""How long a replica that is to go waits for the one that takes its place: for as long as a model takes to load."""


class Relocation(SpecModel):
    """The `user_config` of a stage: the last replica that had to go, and what whoever chose it has to know later."""

    replica: str
    """Its unique id."""
    others: int
    """How many other replicas of the stage must have announced themselves before it goes."""
    since: int
    """When it was chosen (Unix seconds)."""
    unevenness: int
    """Sum of the squares of the numbers of replicas on each node, before it went."""
    in_vain: int = 0
    """How many went before it, one after the other, without making that any less."""
    among: str
    """A digest of the nodes on which the stage can run, and of its number of replicas."""
