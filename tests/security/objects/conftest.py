"""Operators on a real API server, for attacks across components."""

from tests.operator.handlers.conftest import cluster, namespace, operators

__all__ = ["cluster", "namespace", "operators"]
