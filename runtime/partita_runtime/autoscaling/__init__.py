"""The autoscaling rule: how replicas and plans follow the load, the same for the operator and the simulator.

May import `partita_api` and `scheduling.events`. Does no I/O.
"""
