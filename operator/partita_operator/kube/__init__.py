"""Partita's objects in the Kubernetes API: typed reads, server-side apply, and a cache that watches keep fresh."""
