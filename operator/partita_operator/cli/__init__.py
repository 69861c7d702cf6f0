"""The `partita` command; `main.py` imports each subcommand when it is called.

May import everything in the operator and the packages below. Only `__main__.py` and `partita_devtools` import it.
"""
