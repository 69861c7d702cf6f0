"""Partitions GPUs into MIG slices through NVIDIA's mig-manager.

May import `kube`, `ports`, `reconcile.pool` and `settings`.
"""
