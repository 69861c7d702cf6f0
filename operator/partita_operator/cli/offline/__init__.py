"""Subcommands that work on files alone: plan, simulate, profile, mig and subclusters.

May import `cli`, the planner and the runtime.
"""
