"""The session as the planner sees it: its DAG, its latency model, and what is wrong with its profiles.

May import `problem` and `deadline` only.
"""
