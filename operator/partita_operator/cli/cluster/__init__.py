"""Subcommands that use a cluster: explain, top, approve, pause, resume and rollback.

May import `cli`, `kube`, the reconcilers' pure rules and the planner.
"""
