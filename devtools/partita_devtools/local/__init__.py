"""Local mode: sessions on this machine, without Kubernetes, from an embedded API server, Ray and the operator.

May import `sessions`, `ray_cluster`, `api_server`, `machine` and the root modules of `partita_devtools`.
"""
