"""Longest paths through the DAG of a session's modules."""

from collections.abc import Mapping

from partita_api.inferencesession import InferenceSessionSpec


def longest_after(session: InferenceSessionSpec, times: Mapping[str, int]) -> dict[str, int]:
    """For each module, the longest sum of `times` on a path through the modules after it.

    Modules without an entry in `times` count as 0.
    """
    longest: dict[str, int] = {}

    def after(name: str) -> int:
        if name not in longest:
            targets = (edge.target for edge in session.edges if edge.source == name)
            longest[name] = max((times.get(target, 0) + after(target) for target in targets), default=0)
        return longest[name]

    return {module.name: after(module.name) for module in session.modules}
