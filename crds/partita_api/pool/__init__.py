"""Parts of a pool: how its accelerators are claimed, cut into slices, and named in Ray.

May import `digests`, `fields`, `meta` and `pod`.
"""
