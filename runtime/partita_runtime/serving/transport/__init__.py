"""Messages between processes: framing, connections over TCP, and connections over Ray actor calls.

Imports nothing else of `serving`.
"""
