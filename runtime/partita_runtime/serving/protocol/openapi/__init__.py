"""The OpenAPI document of a session. Pure.

May import `serving.protocol`.
"""
