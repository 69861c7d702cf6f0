"""The state of a plan's modules: their pipelines, their load, and the times at which they are evaluated.

May import `scheduling.events`, `scheduling.plan`, `scheduling.queues` and `scheduling.workers`.
"""
