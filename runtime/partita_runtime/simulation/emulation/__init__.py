"""The emulated hardware of a simulation: workers, network, failures and noise, on a virtual clock.

May import `scheduling`; imports no other part of the simulator but the report's data types.
"""
