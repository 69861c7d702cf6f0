"""A session whose replicas are on nodes with a slow network: network namespaces of this machine, without Ray.

Needs root and Linux, with `ip` and `tc` of iproute2.
"""
