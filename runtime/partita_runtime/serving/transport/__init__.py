"""Messages between processes: framing, streams over TCP, and streams over Ray actor calls.

Imports no other folder of `serving`.
"""
