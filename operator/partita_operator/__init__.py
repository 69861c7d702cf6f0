"""The operator: reconcilers, kopf handlers, serving engines, settings and the command line.

It never imports Ray or torch. May import `partita_api`, `partita_planner`, `partita_profiling` and `partita_runtime`.
"""
