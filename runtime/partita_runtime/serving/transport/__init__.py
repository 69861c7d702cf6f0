"""Messages between processes: framing, streams over TCP, and streams over Ray actor calls.

May import no other folder.
"""
