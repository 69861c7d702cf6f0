"""The demonstration from manifests to a report: apply, wait, send load, observe, compare.

May import `definitions`, `environment`, `errors`, `machine`, `operator_process`, `ray_cluster` and `sessions`.
"""
