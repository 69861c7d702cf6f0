"""`partita local`: sessions on this machine without Kubernetes.

May import all of `partita_devtools` but the demo.
"""
