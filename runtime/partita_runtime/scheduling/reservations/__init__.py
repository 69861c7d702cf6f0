"""Reservations of vGPUs and networks for batches: the path search, dispatched batches, and when their reports are due.

May import the data types of `scheduling`, `queues`, `workers` and `modules`. Does no I/O.
"""
