"""Pod templates: how those of the settings and of a pool are merged into pods, and what of them changes measurements.

All of it is pure. May import no other folder.
"""
