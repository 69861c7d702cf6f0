"""The Kubernetes API: typed reads, server-side apply, retries, and a cache of Partita's objects.

It may import the official `kubernetes` package, kopf and `partita_operator.reconcile`, but no handler and no engine.
"""
