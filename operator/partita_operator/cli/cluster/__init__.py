"""Subcommands that use a cluster: explain, top, console, approve, pause, resume and rollback.

Other commands take the options, the names and the objects of a cluster from here, too. May import `cli`.
"""
