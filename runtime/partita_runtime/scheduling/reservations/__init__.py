"""Reserved time on vGPUs and networks: timelines, the search for a path through them, and dispatched batches.

May import `queues` and `workers`. Pure.
"""
