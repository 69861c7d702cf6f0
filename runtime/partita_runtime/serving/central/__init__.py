"""The coordinator: one scheduler that several frontends of a session share, and the frontends' side of it.

May import `serving.dispatch`, `serving.telemetry` and `serving.transport`.
"""
