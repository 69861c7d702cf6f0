"""The data plane on Ray Serve: frontends that schedule and batch, stage replicas that execute, streams between them.

At this level are only the classes that Serve and Ray start; the import paths are stored in applications. They may
import every folder below, and nothing below imports them. All may import `execution`, `models` and `scheduling`. Serve
owns processes, placement, health and upgrades.
"""
