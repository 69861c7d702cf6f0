"""Subcommands that need no cluster: plan, simulate, profile, model, init, mig and subclusters.

`plan` reads from a cluster if it is given a session's name. May import `cli` and `cli.cluster`.
"""
