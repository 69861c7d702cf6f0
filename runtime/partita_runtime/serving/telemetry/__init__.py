"""Signals for autoscaling, Prometheus metrics and OpenTelemetry traces of a session.

Imports no other folder of `serving`.
"""
