"""What is measured of a session: signals for autoscaling, Prometheus metrics and OpenTelemetry traces.

Imports nothing else of `serving`.
"""
