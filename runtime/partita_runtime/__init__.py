"""Everything that serves requests: model execution, the scheduling core, its simulator, the Ray Serve application.

May import `partita_api`, and of `partita_planner` the cut of models into blocks.
"""
