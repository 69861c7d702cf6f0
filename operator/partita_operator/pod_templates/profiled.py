"""What of a pod template a profile depends on."""

from typing import Final

from partita_api.digests import digest
from partita_api.gpupool import GPUPool, SharingMode
from partita_api.pod.reserved import CACHE_VARIABLES
from partita_api.pod.template import PodTemplate
from partita_api.profile import ProfiledPod
from partita_operator.pod_templates.merging import template_document

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
CONTENT_FIELDS: Final = ("env", "envFrom", "volumeMounts", "volumes")
"""Fields of a session's template that its models may be read from."""


def profiled_pod(pool: GPUPool, of_session: PodTemplate | None = None) -> ProfiledPod | None:
    """What may change the measurements of a model: the image, variables of libraries, and CPUs where these compute.

    None if the pool's template changes none of them, or if the pool's times are given. Values that come from Secrets
    and ConfigMaps are not known, so they do not count. All variables and volumes of the session's template do: another
    session may have another model at the same path.
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
        image=template.image,
        variables=variables or None,
        cpus=f"{cpus.normalize():f}" if cpus is not None else None,
        content=_content(of_session),
    )
    return pod if pod != ProfiledPod() else None


def _content(template: PodTemplate | None) -> str | None:
    document = template_document(template) if template is not None else {}
    content = {field: document[field] for field in CONTENT_FIELDS if field in document}
    return digest(content) if content else None


def _matters(variable: str) -> bool:
    return variable not in CACHE_VARIABLES and variable.startswith(EXECUTION_VARIABLE_PREFIXES)
