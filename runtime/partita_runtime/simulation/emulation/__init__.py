"""The emulated hardware of a simulation: workers, network, failures and noise, on a virtual clock.

May import `scheduling` and the data types of the simulator's report.
"""
