"""The public keys of the issuers of clients' tokens, read at the URLs that the platform has set.

May import `engines.bounded_client`, `reconcile.world` and `settings`.
"""
