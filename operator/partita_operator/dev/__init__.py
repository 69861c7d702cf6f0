"""A development environment on one machine: a Kubernetes control plane and a heterogeneous Ray cluster.

Neither needs a container runtime, a registry or a GPU. `environment.dev_up` starts both; the modules
below it also serve the tests, which start the very same processes for as long as a test session lasts.
Linux only: processes are identified and cleaned up through `/proc`.
"""
