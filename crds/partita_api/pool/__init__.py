"""Parts of a pool's spec: how its accelerators are found and cut.

May import `fields` and `meta`.
"""
