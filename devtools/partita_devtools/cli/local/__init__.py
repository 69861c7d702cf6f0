"""`partita local`: sessions on this machine without Kubernetes.

May import `cli`, `local` and `sessions`.
"""
