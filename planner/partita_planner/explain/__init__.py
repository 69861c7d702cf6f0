"""Explanations of a plan or of a missing plan, and the differences between two plans.

May import `allocation`, `problem`, `solver` and `task`.
"""
