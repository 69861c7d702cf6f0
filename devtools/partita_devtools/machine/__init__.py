"""Processes, commands, files and ports of this machine.

May import `errors` only.
"""
