"""Which accelerators each session holds and may use: ledger, accounting, priorities and quotas. Pure.

May import `reconcile.findings` and `reconcile.reasons`.
"""
