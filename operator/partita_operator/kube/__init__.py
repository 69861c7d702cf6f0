"""The Kubernetes API: typed reads, server-side apply, retries, and a cache of Partita's objects.

May import the official `kubernetes` package, kopf, `ports` and `reconcile`; no handlers and no engines.
"""
