"""Fixtures and settings of all tests."""

import hypothesis

pytest_plugins = ["tests.operator.dev_fixtures"]

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("partita", deadline=None)
hypothesis.settings.load_profile("partita")
