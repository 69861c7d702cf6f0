"""Pod templates: how those of pools and sessions are merged into pods, what of them changes measurements, which
containers run functions beside frontends, what else frontends have, and why such pods do not start.

All of it is pure. May import no other folder.
"""
