"""The demonstration from manifests to a report: apply, wait, send load, observe, compare.

May import `sessions` and the root modules of `partita_devtools`.
"""
