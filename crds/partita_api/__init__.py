"""Partita's API: the custom resources, the Profile document, and what every part of Partita reads and writes of them.

Every model is a frozen pydantic model. `partita crds` generates the CRD YAML in `crds/` and in the chart from them. May
import no other package.

>>> from partita_api import parse_manifests
>>> pool = '''
... apiVersion: partita.dev/v1alpha1
... kind: GPUPool
... metadata: {name: fast}
... spec: {count: 4, pricePerHour: "0.71", nodeSelector: {matchLabels: {gpu: l4}}}
... '''
>>> [found] = parse_manifests(pool, "my notebook").pools
>>> found.metadata.name, found.spec.count, str(found.node_selector)
('fast', 4, 'gpu=l4')
"""

from partita_api.fields.quantity import Percent, Quantity
from partita_api.gpupool import GPUPool, GPUPoolSpec, GPUPoolStatus
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, InferenceSessionStatus
from partita_api.manifests import ManifestError, Manifests, parse_manifests
from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec, PipelinePlanStatus
from partita_api.profile import Profile, ProfileRequest

__all__ = [
    "GPUPool",
    "GPUPoolSpec",
    "GPUPoolStatus",
    "InferenceSession",
    "InferenceSessionSpec",
    "InferenceSessionStatus",
    "ManifestError",
    "Manifests",
    "ObjectMeta",
    "Percent",
    "PipelinePlan",
    "PipelinePlanSpec",
    "PipelinePlanStatus",
    "Profile",
    "ProfileRequest",
    "Quantity",
    "parse_manifests",
]
