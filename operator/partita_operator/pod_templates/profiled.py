"""What of a pod template a profile depends on."""

from typing import Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.pod.reserved import CACHE_VARIABLES
from partita_api.profile import ProfiledPod

EXECUTION_VARIABLE_PREFIXES: Final = (
    "ATEN_",
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "KMP_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
)
"""Variables of the libraries that execute models: another value may give other times."""


def profiled_pod(pool: GPUPool) -> ProfiledPod | None:
    """What may change the measurements of a model: the image, variables of libraries, and CPUs where these compute.

    None if the pool's template changes none of them, or if the pool's times are given. Values that come from Secrets
    and ConfigMaps are not known, so they do not count.
    """
    template, emulation = pool.spec.pod_template, pool.spec.emulation
    if emulation is not None and emulation.curves:
        return None
    variables = {
        variable.name: variable.value
        for variable in template.env
        if variable.value_from is None and _matters(variable.name)
    }
    computes = pool.spec.sharing.mode is SharingMode.CPU or emulation is not None
    cpus = template.resources.cpus if computes else None
    pod = ProfiledPod(
        image=template.image, variables=variables or None, cpus=f"{cpus.normalize():f}" if cpus is not None else None
    )
    return pod if pod != ProfiledPod() else None


def _matters(variable: str) -> bool:
    return variable not in CACHE_VARIABLES and variable.startswith(EXECUTION_VARIABLE_PREFIXES)
