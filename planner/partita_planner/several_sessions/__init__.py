"""Several sessions planned together on the same pools, from manifests alone or inside the operator.

May import `allocation`, `problem`, `session`, `solver`, `task` and `validation`.
"""
