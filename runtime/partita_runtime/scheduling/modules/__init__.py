"""The state of a plan's modules: their pipelines, their load, and the times at which they are evaluated.

May import the data types of `scheduling`, `queues` and `workers`. Does no I/O.
"""
