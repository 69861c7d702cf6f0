"""Types of fields that several kinds share: quantities, percentages and label selectors.

May import `meta`.
"""
