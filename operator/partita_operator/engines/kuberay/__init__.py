"""The engine KubeRay: one RayService in each namespace that has sessions.

May import `engines` and `pod_templates`.
"""
