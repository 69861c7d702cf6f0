"""Kubernetes nodes on this machine: a kubelet, a containerd and a network each, from Debian's packages.

Pods are real containers here. What is claimed are the GPUs, as extended resources with GPU Feature Discovery's labels.
"""
