"""Several sessions planned together on the same pools, from manifests alone or inside the operator.

May import `task` and what is below it.
"""
