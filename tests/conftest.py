"""Fixtures and settings of all tests."""

import os
from collections.abc import Iterator

import hypothesis
import pytest

pytest_plugins = ["tests.fixtures"]

# How long an example takes says more about the machine than about the code, and a test is to say the same of the same
# code every time. To look for examples that are not yet known: HYPOTHESIS_PROFILE=search make test-fast
hypothesis.settings.register_profile(
    "partita", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("search", hypothesis.settings.get_profile("partita"), derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partita"))

CONTROL_PLANE_SECONDS = 3600
CONTROL_PLANE, RAY, EXAMPLES = "control plane", "ray", "tests/examples/"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Set what runs together on one worker, and what runs first.

    The control plane's tests share one, Ray's share clusters, those of the examples share the networks that they
    import, and other tests of one file share its fixtures. The control plane's tests begin, since the control plane may
    have to be built, which takes both cores. Ray's tests wait for that: they follow those of the planner.
    """
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)
    yield
    first = next((item for item in items if _group(item) == CONTROL_PLANE), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(CONTROL_PLANE_SECONDS))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("apiserver"):
        return CONTROL_PLANE
    if item.get_closest_marker("ray"):
        return RAY
    file = item.location[0]
    return EXAMPLES if file.startswith(EXAMPLES) else file


def _turn(item: pytest.Item) -> int:
    group = _group(item)
    if group == CONTROL_PLANE:
        return 0
    if group.startswith("tests/planner/"):
        return 1
    return 2 if group == RAY else 3
