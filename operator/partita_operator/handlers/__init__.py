"""The running operator: watches put keys into a queue; workers observe, reconcile and execute the actions.

`operator.py` is the entry. May import `issuers`, `kube`, `partitioning`, `ports`, `reconcile` and `settings`.
"""
