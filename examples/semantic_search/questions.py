"""Questions, each with the number of the line of `corpus.txt` that answers it, from 1.

python -m semantic_search.questions FILE    # writes them for `partita load --payload FILE`
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

QUESTIONS: Final[Mapping[str, int]] = {
    "how hot should water be for green tea": 5,
    "what is coffee without caffeine": 4,
    "can I freeze the beans": 3,
    "the pressure of the machine in an Italian bar": 2,
    "wild yeast culture": 6,
    "when has my dough risen enough": 8,
    "how do I know that the loaf is ready": 9,
    "why put steam into the oven": 8,
    "my wheel has a puncture": 11,
    "rattling when I change gears": 14,
    "height of the bike seat": 13,
    "insects on my plants": 19,
    "leaves of my indoor plant turn brown": 16,
    "what may I put on the heap in the garden": 18,
    "why is the red planet red": 24,
    "why do stars flicker": 22,
    "high tide full moon": 25,
    "how was the first one seen if no light escapes": 23,
    "person not breathing what to do": 27,
    "burnt my finger on the stove": 26,
    "insect bite red circle": 30,
    "his speech is slurred and one arm hangs down": 29,
    "storing pictures safely": 33,
    "is this message from my bank real": 35,
    "internet at home is slow": 34,
    "practise a difficult piece": 37,
    "one string makes a strange noise at the third fret": 38,
    "compensation for a delayed plane": 41,
    "may I take a power bank on a plane": 42,
    "thunderstorm while hiking": 43,
}


def write_requests(path: Path) -> None:
    """Write a request for each question, as `partita load` reads them."""
    np.savez(path, input=np.array([[question.encode()] for question in QUESTIONS]))


if __name__ == "__main__":
    write_requests(Path(sys.argv[1]))
