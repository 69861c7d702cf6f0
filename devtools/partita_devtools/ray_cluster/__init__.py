"""A heterogeneous Ray cluster on this machine: a head, and one Ray node for each GPU class.

May import `errors` and `machine`.
"""
