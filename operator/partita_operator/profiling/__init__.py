"""Runs profiling Jobs on Kubernetes or on Ray, and reads their results.

May import `engines.ray_dashboard`, `kube`, `pod_templates`, `ports` and `settings`.
"""
