"""The memory of a replica by its number of size classes: with the weights in memory once, and once for each class.

    python benchmarks/serving/size_class_memory.py [--quick] [--only Eager]

Each measurement is a process of its own, which builds the classes of a model as a replica of a sub-cluster does, runs
each of them, and then reads its resident memory, less what it had before the first class. The model is a row of linear
layers on the CPU, as an entrypoint (Eager) or as an .onnx file (OnnxRuntime). The last line is a summary in JSON.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.serving.serving_cases.sized import encoder

from partita_api.session.execution import Backend
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.execution.build import warmed
from partita_runtime.execution.shared_weights import SharedWeights
from partita_runtime.execution.stage_build import StageBuild

ROOT = Path(__file__).parents[2]
WIDTH, DEPTH = 1024, 48
"""192 MiB of weights."""
QUICK_WIDTH = 256
"""12 MiB."""
SIZES = (8, 16, 32, 64)
BACKENDS = (Backend.EAGER, Backend.ONNX_RUNTIME)
CLASSES = (1, 2, 4)


def main() -> None:
    """Measure all cases, or the one that a child process is for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model")
    parser.add_argument("--only", choices=BACKENDS, help="only this backend")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(**json.loads(options.case))))
        return
    width = QUICK_WIDTH if options.quick else WIDTH
    weights = 4 * width * (width + 1) * DEPTH / 2**20
    print(f"{weights:.0f} MiB of weights; MiB of memory by number of classes")
    print(f"{'backend':14} {'weights':10}" + "".join(f"{classes:>8}" for classes in CLASSES))
    rows = []
    for backend in [options.only] if options.only else BACKENDS:
        with tempfile.TemporaryDirectory() as folder:
            model = source(Backend(backend), width, Path(folder))
            for common in (False, True):
                mib = [in_process(backend, model, classes, common) for classes in CLASSES]
                how = "once" if common else "each"
                print(f"{backend:14} {how:10}" + "".join(f"{found:8.0f}" for found in mib), flush=True)
                rows.append({"backend": backend, "weights": how, "mib": dict(zip(CLASSES, mib, strict=True))})
    print(json.dumps({"weightsMib": round(weights, 1), "rows": rows}))


def source(backend: Backend, width: int, folder: Path) -> ModelSource:
    """The model of a backend; an .onnx file leaves the length open."""
    if backend is not Backend.ONNX_RUNTIME:
        arguments = {"width": width, "depth": DEPTH}
        return ModelSource(entrypoint="benchmarks.serving.serving_cases.sized:encoder", kwargs=arguments)
    file = folder / "encoder.onnx"
    axes = {"vectors": {0: "batch", 1: "length"}, "mean": {0: "batch"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            encoder(width, DEPTH),
            (torch.zeros(2, 8, width),),
            str(file),
            dynamo=False,
            input_names=["vectors"],
            output_names=["mean"],
            dynamic_axes=axes,
        )
    return ModelSource(file=str(file))


def in_process(backend: str, model: ModelSource, classes: int, common: bool) -> float:
    """MiB that a new process measures."""
    case = json.dumps(
        {"backend": backend, "model": model.model_dump(mode="json"), "classes": classes, "common": common}
    )
    command = [sys.executable, __file__, "--case", case]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr)
    return float(json.loads(result.stdout.splitlines()[-1]))


def measured(backend: str, model: dict[str, object], classes: int, common: bool) -> float:
    """MiB of resident memory for so many classes of the model, in this process."""
    found = ModelSource.model_validate(model)
    width = int(str(found.kwargs.get("width", WIDTH))) if found.file is None else _width_of(found.file)
    small = ModelSource(entrypoint="benchmarks.serving.serving_cases.sized:encoder", kwargs={"width": 8, "depth": 1})
    built = [warmed(_build(Backend(backend), small, 8, SIZES[0]))]  # libraries are in memory
    weights = SharedWeights() if common else None
    before = _resident_mib()
    built += [warmed(_build(Backend(backend), found, width, size), weights) for size in SIZES[:classes]]
    return _resident_mib() - before


def _build(backend: Backend, model: ModelSource, width: int, size: int) -> StageBuild:
    return StageBuild(model=model, input=TensorSpec(shape=(size, width)), blocks=1, max_batch=2, backend=backend)


def _width_of(file: str) -> int:
    import onnx

    shape = onnx.load(file, load_external_data=False).graph.input[0].type.tensor_type.shape
    return int(shape.dim[2].dim_value)


def _resident_mib() -> float:
    """Resident memory, once the freed memory is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
