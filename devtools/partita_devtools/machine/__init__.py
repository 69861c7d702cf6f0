"""Processes, commands, files, ports and certificates of this machine.

May import `errors`.
"""
