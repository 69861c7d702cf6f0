"""Parts of a pool's spec: how its accelerators are claimed, and cut into slices.

May import `fields` and `meta`.
"""
