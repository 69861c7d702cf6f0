"""Local mode: sessions on this machine, without Kubernetes, from an embedded API server, Ray and the operator.

May import `api_server`, `environment`, `errors`, `machine`, `operator_process` and `ray_cluster`.
"""
