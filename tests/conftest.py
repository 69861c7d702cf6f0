"""Fixtures and settings of all tests."""

import os

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

CONTROL_PLANE_SECONDS = 1500


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs the control plane waits until it is downloaded, or built, once on a machine."""
    first = next((item for item in items if item.get_closest_marker("apiserver")), None)
    if first is not None:
        first.add_marker(pytest.mark.timeout(CONTROL_PLANE_SECONDS))
