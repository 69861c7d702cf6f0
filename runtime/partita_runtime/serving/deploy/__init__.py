"""The Serve applications that the operator writes, and the directory in which replicas announce themselves.

May import `serving.transport`.
"""
