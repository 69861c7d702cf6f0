"""Why a plan is as it is, why there is none, and how two plans differ.

May import `task` and what is below it.
"""
