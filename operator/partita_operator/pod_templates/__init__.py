"""Pod templates: how those of pools and sessions are merged into pods, what of them changes measurements, and why such
pods do not start.

All of it is pure. May import no other folder.
"""
