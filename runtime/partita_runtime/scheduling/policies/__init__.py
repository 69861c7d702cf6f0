"""Batching policies: Partita's own, and those of the systems that it is compared with."""
