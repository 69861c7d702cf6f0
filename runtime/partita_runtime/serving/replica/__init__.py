"""The GPU side: a replica receives batches, runs them one at a time, and sends the results on.

May import `serving.deploy` and `serving.transport`.
"""
