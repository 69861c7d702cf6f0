"""Types of fields that several kinds share: quantities, percentages, label selectors and approval.

May import `meta`.
"""
