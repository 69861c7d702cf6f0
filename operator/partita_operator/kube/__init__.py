"""The Kubernetes API: typed reads, server-side apply, retries, and a cache of Partita's objects.

It uses the official `kubernetes` package and kopf. May import `ports` and `reconcile`.
"""
