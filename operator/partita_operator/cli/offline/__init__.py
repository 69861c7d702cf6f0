"""Subcommands that need no cluster: plan, simulate, profile, model, init, mig, subclusters and quality.

`plan` reads from a cluster if it is given a session's name, and `quality` asks a session by its URL. May import `cli`
and `cli.cluster`.
"""
