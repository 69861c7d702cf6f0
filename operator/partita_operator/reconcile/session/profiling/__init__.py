"""Profiles of a session: which it needs, the runs that make missing ones, and models whose content has changed.

`profiles` follows the runs, and `changed_content` forgets profiles whose content replicas do not find. May import
`reconcile`.
"""
