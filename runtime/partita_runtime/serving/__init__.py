"""The data plane on Ray Serve: frontends that schedule and batch, stage replicas that execute, streams between them.

At this level are only the classes that Serve and Ray start; applications store their import paths, and nothing below
imports them. Serve owns processes, placement, health and upgrades. May import `autoscaling`, `execution`, `logs` and
`scheduling`.
"""
