"""Sends the batches that a scheduler decides to replicas, and handles their results.

May import `deploy` and `transport`.
"""
