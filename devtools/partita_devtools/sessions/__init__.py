"""Sessions with their pools on an API server: apply them, observe them, and wait until they serve.

May import `errors` and `machine`.
"""
