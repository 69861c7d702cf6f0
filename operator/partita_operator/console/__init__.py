"""`partita console`: a read-only web page of a cluster's pools, sessions and plans.

`reading` keeps the objects up to date with the rights of the user who started it; `views` turns them into what the
pages show, without I/O; `web` serves the pages. May import `kube` and `reconcile`.
"""
