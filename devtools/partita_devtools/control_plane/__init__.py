"""A Kubernetes control plane on this machine: where its programs come from, its certificates and its processes.

May import `errors` and `machine`.
"""
