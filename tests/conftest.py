"""Fixtures that every test may use."""

pytest_plugins = ["tests.operator.dev_fixtures"]
