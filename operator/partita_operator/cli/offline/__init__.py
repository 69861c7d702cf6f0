"""Subcommands that need no cluster: plan, simulate, profile, mig and subclusters.

May import `cli`, the planner and the runtime.
"""
