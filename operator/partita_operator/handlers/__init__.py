"""The running operator: watches put keys into a queue; workers observe, reconcile and execute the actions.

May import everything in the operator except `cli`; `operator.py` is the entry.
"""
