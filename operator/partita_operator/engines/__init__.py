"""Serving engines: what a plan becomes on Ray Serve, directly or through KubeRay, and how far that has come.

May import `kube`, `ports` and the runtime's data types; never the reconcilers.
"""
