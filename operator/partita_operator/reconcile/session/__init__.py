"""The reconciler of a session: from its spec to replicas that serve it, one step after the other. Pure.

May import `pod_templates`, `reconcile` and `reconcile.capacity`.
"""
