"""What backends, cuts and half precision change in the answers of the examples, measured on their tasks, on a CPU.

    python benchmarks/models/precision.py [--quick] [--only EXAMPLE]... [--form NAME]...

Each example runs in this process as its manifest has it. Its models compute in one form after the other: by Eager,
Inductor or ONNX Runtime; whole, or cut with tensors in FP32 or FP16 between the stages; or all in FP16. The models of
`ocr` are ONNX files, which ONNX Runtime computes with every backend; those of the other examples are exported for it.
References: the text of the package rapidocr; transformers' search; the package silero-vad; the plain models of
`traffic`. Inductor compiles for minutes. The last line is a summary in JSON.
"""

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from benchmarks.models.precision_cases.forms import FORMS, Form, NotPossibleError, forward
from benchmarks.models.precision_cases.tasks import TASKS, Scores

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.manifests import parse_manifests
from partita_api.module_graph import with_size_classes
from partita_runtime.load.reference import Forward, WholeModels

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
QUICK_SAMPLES = 2


def main() -> None:
    """Score all forms of all examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SAMPLES} samples each, without Inductor")
    parser.add_argument("--only", action="append", choices=TASKS, help="only this example (may be repeated)")
    parser.add_argument("--form", action="append", choices=[form.name for form in FORMS], help="only this form")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    forms = [form for form in FORMS if form.name in (options.form or [form.name])]
    if options.quick:
        forms = [form for form in forms if form.backend != "Inductor"]
    rows = []
    for example in options.only or TASKS:
        count = QUICK_SAMPLES if options.quick else TASKS[example].samples
        file = EXAMPLES / example / "manifests" / "session.yaml"
        (session,) = parse_manifests(file.read_text(), str(file)).sessions
        plain = WholeModels(session.spec)
        print(f"\n{example}, {count} samples", flush=True)
        for form in forms:
            scores = scored(example, session.spec, plain, form, count)
            rows.append({"example": example, "form": form.name, "scores": scores})
            said = "  ".join(f"{name} {value:.6g}" for name, value in (scores or {"not possible": 0}).items())
            print(f"  {form.name:36} {said}", flush=True)
    print(json.dumps({"quick": options.quick, "rows": rows}))


def scored(example: str, spec: InferenceSessionSpec, plain: WholeModels, form: Form, count: int) -> Scores | None:
    """The scores of a form; None if a model cannot compute in it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            models = in_form(spec, form, Path(folder))
        except NotPossibleError as error:
            print(f"  {form.name}: {error}", file=sys.stderr)
            return None
        return TASKS[example].scored(lambda request: plain.answer(request, models), plain.answer, count)


def in_form(spec: InferenceSessionSpec, form: Form, folder: Path) -> dict[str, Forward]:
    """The models of a session in this form, by module or size class; equal ones once. Raises NotPossibleError."""
    built: dict[str, Forward] = {}
    named = {}
    for module in with_size_classes(spec).modules:
        if module.model is not None and module.takes is not None:
            key = f"{module.model.model_dump_json()} {module.takes}"
            built[key] = built.get(key) or forward(module.model, module.takes, form, folder)
            named[module.name] = built[key]
    return named


if __name__ == "__main__":
    main()
