"""The reconciler of a session: from its spec to replicas that serve it, one step after the other. Pure.

May import `reconcile` and `reconcile.capacity`.
"""
