"""Queues of requests by deadline and by worker, arrival rates, and the times at which modules are evaluated.

May import the data types of `scheduling` and `workers`. Does no I/O.
"""
