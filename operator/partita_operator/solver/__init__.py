"""Runs the planner in processes with limits, in turns that are fair to all namespaces.

May import `settings`.
"""
