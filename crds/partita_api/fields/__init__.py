"""Types of fields that several kinds share: quantities, label selectors, and rules in CEL and in Python.

May import `meta`.
"""
