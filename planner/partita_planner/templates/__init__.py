"""Templates: all candidate pooled pipelines of one module, enumerated from its profiles and pruned by dominance.

May import `problem`, `session` and `solver`.
"""
