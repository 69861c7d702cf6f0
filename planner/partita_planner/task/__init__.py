"""A planning problem prepared for strategies, its optimum, and the plan that a solution becomes.

May import `allocation`, `least_cost`, `problem`, `session`, `solver`, `templates` and `validation`.
"""
