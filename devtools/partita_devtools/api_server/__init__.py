"""An API server for Partita's kinds in one process, without etcd: its objects are files that one can read.

It keeps the rules of Kubernetes that the operator relies on. May import `errors` and `machine`.
"""
