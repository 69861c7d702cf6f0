"""Sends the batches that a scheduler decides to replicas, and handles their results.

May import `serving.deploy` and `serving.transport`.
"""
