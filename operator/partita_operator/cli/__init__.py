"""The `partita` command: each subcommand in a module of its own, imported when it is called.

May import everything below; nothing imports it.
"""
