"""Objects for the addresses of sessions: those that sessions own, and what the cluster has for public addresses.

`watched_kind` keeps the objects of one kind in memory. May import `kube` and `settings`.
"""
