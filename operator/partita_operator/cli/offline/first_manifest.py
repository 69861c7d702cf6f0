"""The first manifest of a session with one model: what is known of the model, and defaults to check."""

import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

from partita_api.meta import API_VERSION
from partita_api.session.module import IMAGE_DTYPES, ImageLayout, ModelSource, TensorSpec

LONGEST_NAME: Final = 40
"""Characters of a module's name."""
_HEAD: Final = """\
# A session with one model. Lines with "check" are defaults, or depend on your cluster.
apiVersion: {version}
kind: InferenceSession
metadata:
  name: {name}
spec:
  slo:
    latencyMs: {slo_ms}  # {slo_remark}milliseconds from a request's arrival to its answer
    attainment: 99%  # check: the share of requests that must be in time
  rate:
    requestsPerSecond: {rate}  # {rate_remark}requests per second to plan for
  # Without pools, all GPUPools of the cluster may be used.
  # pools: [t4]
  modules:
    - name: {name}
      model:
"""
_DEFAULT: Final = "check: a default; "
DEFAULT_SLO_MS: Final = 200
DEFAULT_RATE: Final = 50
_PLACE: Final = "check: the pods of profiling and replicas must have this file; s3:// and oci:// work, too"
_IMPORT: Final = "check: the pods of profiling and replicas must be able to import it"


@dataclass(frozen=True)
class FirstSession:
    """What a first manifest says."""

    name: str
    """Of the session and of its module."""
    model: ModelSource
    input: TensorSpec
    outputs: str
    """In words."""
    digest: str | None = None
    """SHA-256 of the model's file, if it was read."""
    slo_ms: int | None = None
    """None: a default, which the manifest marks."""
    requests_per_second: int | None = None
    """None: a default, which the manifest marks."""

    def text(self) -> str:
        """The manifest, with comments."""
        head = _HEAD.format(
            version=API_VERSION,
            name=_scalar(self.name),
            slo_ms=DEFAULT_SLO_MS if self.slo_ms is None else self.slo_ms,
            slo_remark=_DEFAULT if self.slo_ms is None else "",
            rate=DEFAULT_RATE if self.requests_per_second is None else self.requests_per_second,
            rate_remark=_DEFAULT if self.requests_per_second is None else "",
        )
        lines = [*self._source(), f"# Outputs: {self.outputs}.", *self._input(), *self._image()]
        return head + "".join(f"      {line}\n" for line in lines)

    def _source(self) -> list[str]:
        if self.model.entrypoint is not None:
            return [f"  # {_IMPORT}", f"  entrypoint: {_scalar(self.model.entrypoint)}"]
        digest = ["  # Where the platform asks for digests:", f"  # sha256: {self.digest}"] if self.digest else []
        return [f"  # {_PLACE}", f"  file: {_scalar(self.model.file)}", *digest]

    def _input(self) -> list[str]:
        shape, dtype = list(self.input.shape), self.input.dtype
        return ["input:", f"  shape: {shape}  # one sample, without the batch dimension", f"  dtype: {dtype}"]

    def _image(self) -> list[str]:
        layout = image_layout(self.input)
        return ["# To accept JPEG and PNG images:", f"# image: {{layout: {layout}}}"] if layout else []


def image_layout(tensor: TensorSpec) -> ImageLayout | None:
    """The layout of a tensor that looks like an image; None if it does not."""
    if len(tensor.shape) != 3 or tensor.dtype not in IMAGE_DTYPES:
        return None
    if tensor.shape[0] in (1, 3):
        return ImageLayout.CHW
    return ImageLayout.HWC if tensor.shape[2] in (1, 3) else None


def name_from(source: str) -> str:
    """A name for the session of a model: from the name of its file or its function. Empty if that has no letters.

    >>> name_from("models/PP-OCRv6_rec.onnx"), name_from("shop.models:vehicle_classifier")
    ('pp-ocrv6-rec', 'vehicle-classifier')
    """
    last = re.split(r"[/:]", source)[-1].rpartition(".")
    return re.sub(r"[^a-z0-9]+", "-", (last[0] or last[2]).lower())[:LONGEST_NAME].strip("-")


def _scalar(value: Any) -> str:
    """A text as YAML."""
    return yaml.safe_dump(value, allow_unicode=True, width=10_000).removesuffix("\n").removesuffix("\n...")
