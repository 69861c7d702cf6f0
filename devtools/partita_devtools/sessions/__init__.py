"""Sessions with their pools on an API server: apply them, observe them, and wait until they serve.

May import `environment`, `errors`, `machine` and `operator_process`.
"""
