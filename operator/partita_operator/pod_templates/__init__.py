"""Pod templates: how a pool's is merged into pods, what of it changes measurements, and why such pods do not start.

All of it is pure. May import no other folder.
"""
