"""A Ray cluster as plain pods: a head, and workers on the nodes of each GPU product."""

from collections.abc import Mapping

from tests.operator.kubectl import Json

ADDRESS = "10.96.0.50"
"""The head's Service: a fixed address, since the cluster made from packages has no DNS."""
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


def ray_pods(image: str, pools: Mapping[str, Mapping[str, str]], gpus: int) -> list[Json]:
    """Namespace, Service, head and one worker with `gpus` GPUs for each pool, by name, with its node selector."""
    common = ["ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=200000000"]
    head = [*common, "--head", f"--port={_PORTS['gcs']}", "--dashboard-host=0.0.0.0", "--num-cpus=4", "--num-gpus=0"]
    workers = [
        _pod(
            f"ray-{pool}",
            image,
            [
                *common,
                f"--address={ADDRESS}:{_PORTS['gcs']}",
                "--num-cpus=8",
                f"--num-gpus={gpus}",
                f'--resources={{"partita-pool-{pool}": {gpus}}}',
                f"--labels=partita.dev/pool={pool}",
            ],
            {"nodeSelector": dict(selector), "limits": {"nvidia.com/gpu": str(gpus)}},
        )
        for pool, selector in pools.items()
    ]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "ray-head", "namespace": NAMESPACE},
            "spec": {
                "clusterIP": ADDRESS,
                "selector": {"app": "ray-head"},
                "ports": [{"name": name, "port": port} for name, port in _PORTS.items()],
            },
        },
        _pod("ray-head", image, head, {"nodeSelector": {"kubernetes.io/hostname": "control"}, "limits": {}}),
        *workers,
    ]


def _pod(name: str, image: str, command: list[str], placement: Json) -> Json:
    container = {
        "name": "ray",
        "image": image,
        "command": command,
        "env": [{"name": key, "value": value} for key, value in _ENVIRONMENT.items()],
        "resources": {"limits": placement["limits"]},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Always",
            "enableServiceLinks": False,
            "nodeSelector": placement["nodeSelector"],
            "containers": [container],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
    }
