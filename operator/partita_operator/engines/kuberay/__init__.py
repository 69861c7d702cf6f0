"""The engine KubeRay: one RayService in each namespace that has sessions.

May import the root modules of `engines`, and `kube`.
"""
