"""The data plane on Ray Serve: frontends that batch, stage replicas that execute, and streams between them.

Serve owns processes, placement, health and upgrades; the scheduling core owns which requests run together, where and
when. A request never becomes a Ray message: it arrives by HTTP, waits in the frontend that owns it, and travels in
its batch over a TCP stream.
"""
