"""The session: its DAG, its latency model, and checks of its profiles.

May import `problem` and `solver` only.
"""
