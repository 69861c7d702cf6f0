"""The demonstration from manifests to a report: apply, wait, send load, observe, compare.

May import `definitions`, `errors`, `machine`, `ray_cluster` and `sessions`.
"""
