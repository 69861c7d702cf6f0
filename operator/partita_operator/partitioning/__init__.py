"""Partitions GPUs into MIG slices through NVIDIA's mig-manager.

May import `kube`, `ports`, `settings`, `reconcile.pool` and the planner's MIG rules.
"""
