"""From sockets to requests: HTTP on the frontend's own port and behind Serve's proxy, and gRPC.

May import every other folder of `serving` but `replica`; only the entry points import it.
"""
