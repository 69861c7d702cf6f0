"""The GPU side: a replica takes batches from the network, runs them one at a time and sends the results on.

May import `deploy` and `transport`.
"""
