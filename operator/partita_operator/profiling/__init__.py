"""Runs profiling Jobs on Kubernetes or on Ray, and reads their results.

May import `kube`, `engines` and `ports`.
"""
