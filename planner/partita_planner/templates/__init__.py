"""Templates: all candidate pooled pipelines of one module, enumerated from its profiles and pruned by dominance.

May import `session`, `problem` and `solver`.
"""
