"""Compares a session's answers to samples with the answers that are expected. All but `asking` does no I/O.

May import `serving.protocol`.
"""
