"""From sockets to requests: HTTP on a port of the frontend's own and behind Ray Serve's proxy, and gRPC.

May import every other folder of `serving`; nothing below imports it.
"""
