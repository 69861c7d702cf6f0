"""Kubernetes nodes on this machine, each with a kubelet, a containerd and a network.

Pods are real containers. GPUs are only declared: extended resources with the labels of GPU Feature Discovery. May
import `control_plane`, `errors` and `machine`.
"""
