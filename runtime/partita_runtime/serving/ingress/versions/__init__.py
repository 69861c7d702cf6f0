"""Requests that another session answers as a version of this one: which ones, and how they are sent on.

May import `serving.ingress`.
"""
