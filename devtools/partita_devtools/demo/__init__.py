"""The demonstration from manifests to a report: apply, wait, send load, observe, compare.

May import `sessions`, `ray_cluster`, `machine` and the root modules of `partita_devtools`.
"""
