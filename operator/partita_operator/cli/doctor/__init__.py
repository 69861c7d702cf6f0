"""`partita doctor`: checks the installation, this machine and a cluster.

Probes read facts, checks turn facts into findings without I/O, and the command prints the findings. It needs no extra.
May import `cli` and `cli.cluster`.
"""
