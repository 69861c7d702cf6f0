"""Inference requests from their decoding to their answers: whole, or as an event stream.

May import `serving.ingress` and `serving.ingress.versions`.
"""
