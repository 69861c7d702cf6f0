"""Requests that wait: by deadline, by worker, with their arrival rates, and when to look at each queue next.

May import the data types of `scheduling` and `workers`. Pure.
"""
