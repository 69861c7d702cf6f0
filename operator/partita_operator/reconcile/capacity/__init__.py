"""Who holds which accelerators, and how many a session may use: accounting, priorities and quotas. Pure.

May import the data types of `reconcile`.
"""
