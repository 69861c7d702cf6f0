"""The subcommands `partita dev` and `partita demo`.

May import all of `partita_devtools`.
"""
