"""The same networks by torch (Eager, Inductor) and as .onnx files by ONNX Runtime, on one thread of a CPU.

Each network is built in each form as a replica builds it. Then batches run in turns, so that whatever else the machine
does meets all forms alike. The table has the median latency of each batch size; the rate that one thread carries within
five latencies of a batch of one by Eager (the largest batch of which two executions fit); and the cold start: from
nothing to the first answer, compilation included. The text networks exist as .onnx files only. The last line is a
summary in JSON.

    python benchmarks/serving/formats.py [--quick] [--repeats 9]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases import vision
from tests.runtime.models.onnx_files import packaged

from partita_api.session.execution import Backend
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.execution.stage_build import StageBuild
from partita_runtime.models.capture import examples
from partita_runtime.models.standard_inputs import standard_input

MODULE = "benchmarks.serving.serving_cases.vision"
TEXTS = {"PP-OCRv6_det_small": (3, 320, 320), "PP-OCRv6_rec_small": (3, 48, 320)}
SLO_FACTOR = 5.0


@dataclass(frozen=True)
class Form:
    """One network in one form."""

    name: str
    source: ModelSource
    backend: Backend


@dataclass
class Measured:
    """What was measured of a form."""

    form: Form
    built: BuiltExecutor
    cold_seconds: float
    millis: dict[int, float]
    """Median latency by batch size."""

    def rate(self, slo_ms: float) -> float:
        """Samples per second within the SLO; 0 if not even a batch of one fits."""
        return max((1000 * b / ms for b, ms in self.millis.items() if 2 * ms <= slo_ms), default=0.0)


def main() -> None:
    """Measures all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny networks, two batch sizes")
    parser.add_argument("--repeats", type=int, default=9, help="executions of each batch (default: 9)")
    options = parser.parse_args()
    batches = (1, 4) if options.quick else (1, 2, 4, 8)
    pixels = vision.TINY_SIZE if options.quick else vision.SIZE
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("resnet", "efficientnet"):
            spec = TensorSpec(shape=(3, pixels, pixels))
            rows.append(compared(name, forms(name, spec, options.quick, Path(folder)), spec, batches, options.repeats))
        for name, shape in TEXTS.items():
            form = Form(name, ModelSource(file=str(packaged(name))), Backend.ONNX_RUNTIME)
            rows.append(compared(name, [form], TensorSpec(shape=shape), batches, options.repeats))
    print(json.dumps({"quick": options.quick, "torch": torch.__version__, "networks": rows}))


def forms(name: str, spec: TensorSpec, tiny: bool, folder: Path) -> list[Form]:
    """A network of `vision` in all forms."""
    source = ModelSource(entrypoint=f"{MODULE}:{name}", kwargs={"tiny": tiny})
    file = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            getattr(vision, name)(tiny=tiny),
            tuple(examples(spec, 2)),
            str(file),
            dynamo=False,
            input_names=["samples"],
            dynamic_axes={"samples": {0: "batch"}},
        )
    return [
        Form("Eager", source, Backend.EAGER),
        Form("Inductor", source, Backend.INDUCTOR),
        Form("OnnxRuntime", ModelSource(file=str(file)), Backend.ONNX_RUNTIME),
    ]


def compared(
    name: str, all_forms: list[Form], spec: TensorSpec, batches: tuple[int, ...], repeats: int
) -> dict[str, Any]:
    """All forms of one network, in turns."""
    found = [cold(form, spec, batches[-1]) for form in all_forms]
    answers = [measured.built.executor.run([standard_input(spec, 2)])[0] for measured in found]
    scale = float(np.abs(answers[0]).max())
    error = max(float(np.abs(answer - answers[0]).max()) / scale for answer in answers)
    for batch in batches:
        samples = standard_input(spec, batch)
        times: list[list[float]] = [[] for _ in found]
        for repeat in range(repeats + 1):
            for measured, taken in zip(found, times, strict=True):
                started = time.perf_counter()
                measured.built.executor.run([samples])
                if repeat:  # the first warms up
                    taken.append(1000 * (time.perf_counter() - started))
        for measured, taken in zip(found, times, strict=True):
            measured.millis[batch] = statistics.median(taken)
    slo_ms = SLO_FACTOR * found[0].millis[1]
    print(f"{name}: SLO {slo_ms:.0f} ms, answers differ by {error:.1e} of the largest number")
    print("| form | " + " | ".join(f"ms, {batch}" for batch in batches) + " | samples/s in the SLO | cold start, s |")
    for measured in found:
        cells = [f"{measured.millis[batch]:.1f}" for batch in batches]
        used = measured.built.backend_used
        label = measured.form.name if measured.form.name in (used, name) else f"{measured.form.name}, ran {used}"
        print(f"| {label} | {' | '.join(cells)} | {measured.rate(slo_ms):.1f} | {measured.cold_seconds:.1f} |")
    return {
        "network": name,
        "slo_ms": slo_ms,
        "error": error,
        "forms": {
            measured.form.name: {
                "ran": measured.built.backend_used,
                "millis": measured.millis,
                "rate": measured.rate(slo_ms),
                "cold_seconds": measured.cold_seconds,
            }
            for measured in found
        },
    }


def cold(form: Form, spec: TensorSpec, max_batch: int) -> Measured:
    """The form built as a replica builds it, until its first answer."""
    started = time.perf_counter()
    build = StageBuild(model=form.source, input=spec, blocks=1, backend=form.backend, max_batch=max_batch)
    built = build_executor(build)
    built.executor.warm_up([1])
    return Measured(form, built, time.perf_counter() - started, {})


if __name__ == "__main__":
    main()
