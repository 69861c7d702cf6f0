"""The cheapest plan for given rates: covers of each module's demand, an exact latency split, and limited pools.

May import `allocation`, `session`, `solver` and `templates`.
"""
