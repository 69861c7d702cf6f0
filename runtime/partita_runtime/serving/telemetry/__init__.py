"""Signals for autoscaling, Prometheus metrics and OpenTelemetry traces of a session.

May import `installation`.
"""
