"""The autoscaling rule: how replicas and plans follow the load, the same for the operator and the simulator.

It does no I/O. May import `scheduling.events`.
"""
