"""The first manifest of a session with one model: what is known of the model, and defaults to check."""

import re
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import yaml

from partita_api.meta import API_VERSION
from partita_api.session.module import IMAGE_DTYPES, DType, ImageLayout, Inputs, ModelSource, TensorSpec, specs_of

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
_REPOSITORY: Final = "check: the pods of profiling and replicas load it from the place in the chart's `models`"
_TOKENS: Final = (DType.INT64, DType.INT32)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class FirstSession:
    """What a first manifest says."""

    name: str
    """Of the session and of its module."""
    model: ModelSource
    inputs: Inputs
    outputs: str
    """In words."""
    content: str | None = None
    """What was read: the SHA-256 of the model's file, or the commit of a repository."""
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
        lines = [*self._source(), f"# Outputs: {self.outputs}.", *self._inputs(), *self._sizes(), *self._image()]
        return head + "".join(f"      {line}\n" for line in lines)

    def _source(self) -> list[str]:
        if self.model.entrypoint is not None:
            return [f"  # {_IMPORT}", f"  entrypoint: {_scalar(self.model.entrypoint)}"]
        if self.model.hugging_face is not None:
            return [f"  # {_REPOSITORY}", f"  huggingFace: {_scalar(self.model.hugging_face)}", *self._revision()]
        digest = ["  # Where the platform asks for digests:", f"  # sha256: {self.content}"] if self.content else []
        return [f"  # {_PLACE}", f"  file: {_scalar(self.model.file)}", *digest]

    def _revision(self) -> list[str]:
        lines = []
        if self.model.revision is not None:
            lines.append(f"  revision: {_scalar(self.model.revision)}")
        elif self.content is not None and _COMMIT.fullmatch(self.content):
            lines += ["  # To stay with what was read now:", f"  # revision: {_scalar(self.content)}"]
        return lines if self.model.task is None else [*lines, f"  task: {self.model.task}"]

    def _inputs(self) -> list[str]:
        if isinstance(self.inputs, TensorSpec):
            shape, dtype = list(self.inputs.shape), self.inputs.dtype
            return ["input:", f"  shape: {shape}  # one sample, without the batch dimension", f"  dtype: {dtype}"]
        return [
            "inputs:  # one sample, without the batch dimension",
            *(
                f"  - {{name: {_scalar(tensor.name)}, shape: {list(tensor.shape)}, dtype: {tensor.dtype}}}"
                for tensor in self.inputs
            ),
        ]

    def _sizes(self) -> list[str]:
        """How to take texts of any length, if the inputs look like tokens, and the model may take other sizes."""
        specs = specs_of(self.inputs)
        size = specs[0].shape[0]
        are_tokens = size > 1 and all(spec.shape == (size,) and spec.dtype in _TOKENS for spec in specs)
        if not are_tokens or (self.model.file or "").endswith(".pt2"):
            return []
        return [
            f"# To accept texts of any length up to {size}, set `variableDimension: 0` in each input, and:",
            f"# sizes: [{{size: {ceil(size / 4)}}}, {{size: {size}}}]",
        ]

    def _image(self) -> list[str]:
        layout = image_layout(self.inputs) if isinstance(self.inputs, TensorSpec) else None
        return ["# To accept JPEG and PNG images:", f"# image: {{layout: {layout}}}"] if layout else []


def image_layout(tensor: TensorSpec) -> ImageLayout | None:
    """The layout of a tensor that looks like an image; None if it does not."""
    if len(tensor.shape) != 3 or tensor.dtype not in IMAGE_DTYPES:
        return None
    if tensor.shape[0] in (1, 3):
        return ImageLayout.CHW
    return ImageLayout.HWC if tensor.shape[2] in (1, 3) else None


def name_from(model: ModelSource) -> str:
    """A name for the session of a model: from that of its file, function or repository. Empty if it has no letters.

    >>> name_from(ModelSource(file="models/PP-OCRv6_rec.onnx")), name_from(ModelSource(hugging_face="BAAI/bge-v1.5"))
    ('pp-ocrv6-rec', 'bge-v1-5')
    """
    last = re.split(r"[/:]", model.file or model.entrypoint or model.hugging_face or "")[-1]
    name = last.rpartition(".")[0] if model.file is not None else last
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST_NAME].strip("-")


def _scalar(value: Any) -> str:
    """A text as YAML."""
    return yaml.safe_dump(value, allow_unicode=True, width=10_000).removesuffix("\n").removesuffix("\n...")
