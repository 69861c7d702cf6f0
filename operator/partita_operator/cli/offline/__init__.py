"""Subcommands that need no cluster: plan, simulate, profile, mig and subclusters.

May import `cli`, `cluster`, `settings`, the reconcilers' pure rules and the packages below the operator.
"""
