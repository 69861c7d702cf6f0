"""Expressions of `when`: a part of the Common Expression Language (CEL) without loops, as a parser and an evaluator.

May import no other folder.
"""
