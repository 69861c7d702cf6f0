"""Batching policies: Partita's own, and those of other systems for comparison.

May import the rest of `scheduling` except `core`, `current_plan` and `trace`. Does no I/O.
"""
