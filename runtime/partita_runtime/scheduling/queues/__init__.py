"""The queue of a module's requests by deadline, and the rate of their arrivals.

May import no other folder.
"""
