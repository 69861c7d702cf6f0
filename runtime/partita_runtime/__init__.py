"""Everything that serves requests: model execution, the scheduling core, its simulator, the Ray Serve application.

May import `partita_api` and `partita_planner.prepartitioning`.
"""
