"""The reconciler of a pool: its accelerators, who holds them, and how its nodes are cut into MIG slices. Pure.

May import `reconcile` and `reconcile.capacity`.
"""
