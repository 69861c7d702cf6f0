"""Versions of a session that the rules refuse, and as many as a session may have."""

from typing import Any

import pytest
from tests.crds.documents import SESSION, Json


def version(**fields: Any) -> Json:
    return {"name": "2", "session": "traffic-v2", **fields}


def header(name: str, value: str = "b") -> Json:
    return {"header": {"name": name, "value": value}}


def promoted() -> Json:
    """As many steps as a version may have."""
    return {"promotion": {"stepsPercent": [*range(1, 9)], "minutes": 10_080}}


def largest_versions() -> list[Json]:
    return [
        {
            "name": f"{number:032}",
            "session": "s" * 54,
            "share": "12.5000%",
            **promoted(),
            **header("x" * 64, f"{number:128}".strip()),
        }
        for number in range(8)
    ]


REFUSED = [
    pytest.param(
        SESSION, "spec.versions", [version(name="1")], 'version "1" is the session itself', id="the version of itself"
    ),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(share="60%"), version(name="3", share="40.0001%")],
        "must not be more than 100% together",
        id="shares of more than all requests",
    ),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(**header("X-Variant")), version(name="3", **header("x-variant"))],
        "two versions must not have the same header",
        id="one header for two versions",
    ),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(shadow={}, share="0.0001%")],
        "a version with shadow answers no requests",
        id="a shadow with a share",
    ),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(shadow={}, **header("x-variant"))],
        "a version with shadow answers no requests",
        id="a shadow with a header",
    ),
    *[
        pytest.param(
            SESSION,
            "spec.versions",
            [version(share=share, promotion={"stepsPercent": steps})],
            "promotion.stepsPercent must be below share, the smallest first",
            id=name,
        )
        for name, share, steps in (
            ("steps in another order", "100%", [25, 5]),
            ("a step as large as the share", "50.0%", [5, 50]),
            ("steps to no share", "0%", [5]),
        )
    ],
    pytest.param(
        SESSION,
        "spec.versions",
        [version(promotion={"stepsPercent": [5]})],
        "promotion.stepsPercent must be below share, the smallest first",
        id="steps without a share",
    ),
    *[
        pytest.param(
            SESSION,
            "spec.versions",
            [version(**header(name))],
            "must not be a header with a meaning of its own",
            id=f"a version by {name}",
        )
        for name in ("Authorization", "content-length", "Partita-Forwarded", "X-Forwarded-For", "Host")
    ],
]
ACCEPTED = [
    pytest.param(
        SESSION,
        "spec.versions",
        [version(share="100%", promotion={"stepsPercent": [1, 5, 9, 50], "minutes": 60})],
        id="a share in steps",
    ),
    pytest.param(
        SESSION, "spec.versions", [version(share="0.0%", shadow={"absoluteTolerance": "0.01"})], id="a shadow version"
    ),
    pytest.param(SESSION, "spec.versions", [version()], id="a version by its path"),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(share="33.3333%"), version(name="3", share="66.6667%"), version(name="4", session="traffic-v2")],
        id="shares of all requests",
    ),
    pytest.param(
        SESSION,
        "spec.versions",
        [version(**header("x-variant")), version(name="3", **header("X-VARIANT", "c"))],
        id="two values of one header",
    ),
]
