"""A planning problem prepared for strategies, its optimum, and the plan that a solution becomes.

May import `least_cost`, `allocation`, `templates`, `session`, `problem`, `solver` and the validator.
"""
