"""Reads .pt2 files of torch.export and runs nothing that they contain: what is not on a list is refused.

May import `models.errors`.
"""
