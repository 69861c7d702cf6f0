"""Models: found, captured as a graph, cut into blocks.

`errors`, `layers` and `standard_input` are pure; `source`, `capture` and `partition` need torch.
"""
