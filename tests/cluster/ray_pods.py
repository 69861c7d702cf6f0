"""A Ray cluster as plain pods: a head, and workers on the nodes of each GPU product."""

from collections.abc import Mapping

from tests.operator.kubectl import Json

NAMESPACE = "ray"
_ENVIRONMENT = {
    "HOME": "/tmp",
    "USER": "partita",
    "OMP_NUM_THREADS": "1",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",
    # A node whose pods share half a CPU needs its time to start Ray.
    "RAY_raylet_start_wait_time_s": "180",
}
_PORTS = {"gcs": 6379, "dashboard": 8265, "serve": 8000}


HEAD = "ray-head"
"""The head's Service."""
_NOT_ON_GPUS: Json = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "DoesNotExist"}]},
            }
        ]
    }
}


def head_service() -> list[Json]:
    """Namespace and Service of the head."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": HEAD, "namespace": NAMESPACE},
            "spec": {
                "selector": {"app": HEAD},
                "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
            },
        },
    ]


def ray_pods(image: str, address: str, pools: Mapping[str, Mapping[str, str]], gpus: int) -> list[Json]:
    """The head and one worker with `gpus` GPUs for each pool, by name, with its node selector.

    `address` is that of the head's Service: a cluster made from packages has no DNS.
    """
    common = ["ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=200000000"]
    head = [*common, "--head", f"--port={_PORTS['gcs']}", "--dashboard-host=0.0.0.0", "--num-cpus=4", "--num-gpus=0"]
    workers = [
        _pod(
            f"ray-{pool}",
            image,
            [
                *common,
                f"--address={address}:{_PORTS['gcs']}",
                "--num-cpus=8",
                f"--num-gpus={gpus}",
                f'--resources={{"partita-pool-{pool}": {gpus}}}',
                f"--labels=partita.dev/pool={pool}",
            ],
            {"nodeSelector": dict(selector)},
            {"nvidia.com/gpu": str(gpus)},
        )
        for pool, selector in pools.items()
    ]
    return [_pod(HEAD, image, head, {"affinity": _NOT_ON_GPUS}, {}), *workers]


def _pod(name: str, image: str, command: list[str], placement: Json, limits: Json) -> Json:
    container = {
        "name": "ray",
        "image": image,
        "command": command,
        "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.items()],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Always",
            "enableServiceLinks": False,
            **placement,
            "containers": [container],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
    }
