"""The session as the planner sees it: checks of its DAG and its profiles, its rates, and its latency model.

May import `problem`.
"""
