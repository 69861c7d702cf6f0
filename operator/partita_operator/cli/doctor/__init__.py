"""`partita doctor`: checks the installation, this machine and a cluster.

Facts and checks are pure and import nothing but `partita_api` and other facts. Probes read the facts. The command joins
them; it needs no extra.
"""
