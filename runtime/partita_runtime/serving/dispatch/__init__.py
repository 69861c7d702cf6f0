"""Batches to the replicas and their results back, as the scheduling core decides.

May import `deploy` and `transport`.
"""
