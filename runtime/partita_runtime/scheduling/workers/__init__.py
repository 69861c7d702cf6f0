"""The vGPUs that a plan runs on: pools, the registry of workers, their load and the correction of their profiles.

May import the data types of `scheduling`, and timelines of `reservations`. Pure.
"""
