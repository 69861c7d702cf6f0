"""The report of a demonstration: one HTML file that needs nothing else, and the result as JSON beside it."""
