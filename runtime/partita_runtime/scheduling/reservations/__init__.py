"""Reserved time on vGPUs and networks: timelines, the path search, and dispatched batches.

May import `queues` and `workers`. Does no I/O.
"""
