"""The emulated hardware of a simulation: workers, network, failures and noise, on a virtual clock.

May import no other folder.
"""
