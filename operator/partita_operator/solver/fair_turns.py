"""Which waiting search starts next. Pure."""

from collections.abc import Sequence


def next_search(waiting: Sequence[str], running: Sequence[str], started: Sequence[str], slots: int) -> int | None:
    """Index of the waiting search that starts next; None if none may start now.

    waiting: the namespaces of the waiting searches, by arrival. running: those of the running ones. started: each
    namespace once, by the last start of one of its searches. slots: how many searches may run at the same time.

    The namespace with the fewest running searches is next; of several, the one whose last start was the earliest. If
    there are several slots, no namespace gets all: one is left for a namespace that has nothing running.
    """
    if len(running) >= slots:
        return None
    most = max(1, slots - 1)
    turns = {namespace: turn for turn, namespace in enumerate(started)}
    possible = [index for index, namespace in enumerate(waiting) if running.count(namespace) < most]
    return min(
        possible,
        key=lambda index: (running.count(waiting[index]), turns.get(waiting[index], -1), index),
        default=None,
    )
