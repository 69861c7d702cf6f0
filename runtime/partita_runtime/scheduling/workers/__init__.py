"""The workers of a plan (one per vGPU): pools, the worker registry, their load, and corrections of their profiles.

May import the data types of `scheduling`, and timelines of `reservations`. Does no I/O.
"""
