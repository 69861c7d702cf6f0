"""Partitions GPUs into MIG slices through NVIDIA's mig-manager.

May import `kube` and `ports`.
"""
