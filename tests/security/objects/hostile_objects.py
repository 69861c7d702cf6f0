"""Objects that the API server stores, made to stop the operator or to mislead its readers."""

import json

from tests.operator.kubectl import Json, session

DEEPEST = 9_900
"""Levels of nesting; the API server refuses 10,000."""


def lists(levels: int) -> str:
    """The JSON text of nested lists."""
    return "[" * levels + "]" * levels


def maps(levels: int) -> str:
    """The JSON text of nested maps."""
    return '{"a":' * levels + "1" + "}" * levels


def with_arguments(name: str, arguments: str, labels: Json | None = None) -> str:
    """The JSON text of a session whose model has these arguments: JSON text, too deep for Python's encoder."""
    module: Json = {
        "name": "detector",
        "model": {"entrypoint": "tests.models:detector", "kwargs": {"depth": "@"}},
        "input": {"shape": [3, 32, 32]},
    }
    document = session(name, modules=[module])
    document["metadata"]["labels"] = labels or {}
    return json.dumps(document).replace('"@"', arguments)


def hostile_sessions(prefix: str) -> dict[str, str]:
    """Sessions by name, as JSON text. Each is refused for the bounds of its arguments alone.

    The API server's managed fields make the cost of a write grow with the square of the depth of maps: on busy cores,
    writes to the deepest ones end by their timeouts. Half the depth is still five times Python's limit.
    """
    arguments = {
        "deep-map": maps(1_100),
        "deeper-list": lists(3_000),
        "deeper-map": maps(DEEPEST // 2),
        "deepest-list": lists(DEEPEST),
        "wide": "[" + ",".join(["[]"] * 300_000) + "]",
        "long": json.dumps("x" * 1_000_000),
    }
    return {f"{prefix}-{name}": with_arguments(f"{prefix}-{name}", text) for name, text in arguments.items()}
