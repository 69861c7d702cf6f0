"""Parts of a session's spec: modules, how models run, frontends, addresses, scaling, and when plans change.

May import `fields`, `meta` and `pod`.
"""
