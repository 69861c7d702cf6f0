"""Subcommands that use a cluster: explain, top, approve, pause, resume and rollback.

May import `cli`, `kube` and the reconcilers' pure rules.
"""
