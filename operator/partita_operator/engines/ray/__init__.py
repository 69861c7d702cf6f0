"""The engine Ray: Ray Serve on existing Ray clusters, through the REST API of their dashboards.

May import `engines`.
"""
