"""The report of a demonstration: one self-contained HTML file, and the result as JSON beside it.

May import `demo`.
"""
