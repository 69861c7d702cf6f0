"""Runs profiling Jobs on Kubernetes or on Ray, and reads their results.

May import `kube`, `engines`, `ports`, `settings` and the data types of the packages below the operator.
"""
