"""The engine KubeRay: one RayService in each namespace that has sessions.

May import `certificates`, `engines` and `pod_templates`.
"""
