"""Which accelerators each session holds and may use: ledger, accounting, priorities and quotas. Pure.

May import the data types of `reconcile`.
"""
