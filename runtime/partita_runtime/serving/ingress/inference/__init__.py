"""Inference requests from their decoding to their answers: whole, or as an event stream.

May import `serving.ingress`, `serving.protocol`, `serving.session` and `serving.telemetry`.
"""
