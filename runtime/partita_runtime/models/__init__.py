"""Models: loading, capture as a graph, and the cut into blocks.

May import `partita_api`, and of `partita_planner` the choice of cuts. `errors`, `layers`, `policy` and
`standard_inputs` need no torch; the other modules do.
"""
