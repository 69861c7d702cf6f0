"""From sockets to requests: HTTP on the frontend's own port and behind Serve's proxy, and gRPC.

May import `serving.authentication`, `serving.deploy`, `serving.protocol`, `serving.session`, `serving.telemetry` and
`serving.transport`.
"""
