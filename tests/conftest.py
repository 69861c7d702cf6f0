"""Fixtures and settings of all tests."""

import os

import hypothesis

pytest_plugins = ["tests.operator.dev_fixtures"]

# How long an example takes says more about the machine than about the code, and a test is to say the same of the same
# code every time. To look for examples that are not yet known: HYPOTHESIS_PROFILE=search make test-fast
hypothesis.settings.register_profile(
    "partita", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("search", hypothesis.settings.get_profile("partita"), derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "partita"))
