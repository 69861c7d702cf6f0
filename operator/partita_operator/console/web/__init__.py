"""The pages over HTTP, rendered here, and their style and script.

A change of the cluster reaches open pages as a server-sent event. May import `console.reading` and `console.views`.
"""
