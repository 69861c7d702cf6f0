"""Explanations of a plan or of a missing plan, and the differences between two plans.

May import `task` and what is below it.
"""
