"""The typed subset of Kubernetes' pod templates that pools and sessions may set, and the names that Partita reserves.

May import `fields` and `meta`.
"""
