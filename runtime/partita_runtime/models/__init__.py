"""Models: loading, capture as a graph, and the cut into blocks.

`errors`, `layers`, `policy` and `standard_inputs` need no torch; the other modules do. May import no other folder.
"""
