"""`partita doctor`: checks the installation, this machine and a cluster.

Facts and checks are pure: they may import `partita_api`, the exit codes and each other. Probes read the facts; they may
also import `kube`, `settings` and `cli.cluster`. The command joins them; it needs no extra.
"""
