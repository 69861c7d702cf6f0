"""Development tools, in no image of the operator: a Kubernetes control plane, nodes and a Ray cluster on one machine.

Everything is a plain process, needs neither a container runtime nor a registry, and lies in one state directory.
May import every other package; none imports it.
"""
