"""How many vGPUs of which templates serve the demand: the MILP, its relaxation, and exact special cases.

May import `problem`, `session`, `solver` and `templates`.
"""
