"""The `partita` command; `main.py` imports each subcommand when it is called.

Only `__main__.py` and `partita_devtools` import it. May import `console`, `engines`, `handlers`, `kube`, `ports`,
`profiling`, `reconcile`, `settings` and `solver`.
"""
