"""Reserved time on vGPUs and networks: timelines, the path search, and dispatched batches.

May import the data types of `scheduling`, `queues` and `workers`. Does no I/O.
"""
