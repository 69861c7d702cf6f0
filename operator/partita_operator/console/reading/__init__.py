"""The objects of a cluster, read with the rights of the user: watched once for all viewers.

A failing API server leaves the last objects, and the time they are from. May import no other folder.
"""
