"""Parts of a session's spec: its modules, how their models run, how replicas follow the load, and when plans change.

May import `fields` and `meta`.
"""
