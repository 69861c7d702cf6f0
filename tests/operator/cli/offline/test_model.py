"""`partita model inspect`: a look at models before anything is deployed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper
from tests.runtime.models.hugging_face.checkpoints import save
from tests.runtime.models.onnx_files import exported, made, packaged
from tests.runtime.models.sample_models import late

from partita_api.session.module import DType, NamedInput
from partita_operator.cli.main import main
from partita_runtime.models.capture import examples

RECOGNITION = packaged("PP-OCRv6_rec_small")


def inspect(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", "inspect", *arguments])


def test_a_file_shows_its_blocks_with_memory_work_and_cuts() -> None:
    result = inspect(str(RECOGNITION), "--shape", "3,48,96", "--blocks", "4", "--output", "json")

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["input"] == {"shape": [3, 48, 96], "dtype": "FP32"}
    assert found["outputs"] == [{"shape": [12, 18710], "dtype": "FP32"}]
    assert len(found["blocks"]) == 4
    assert sum(block["share"] for block in found["blocks"]) == pytest.approx(1, abs=0.001)
    weights = sum(block["memory"]["weightsBytes"] for block in found["blocks"])
    assert weights == pytest.approx(RECOGNITION.stat().st_size, rel=0.05)
    assert found["blocks"][-1]["crossing"]["specs"] == found["outputs"]
    assert all(block["megaflops"] > 0 for block in found["blocks"])


def test_the_table_has_a_line_for_each_block() -> None:
    result = inspect("tests.runtime.models.sample_models:residuals", "--shape", "3,16,16", "--blocks", "3")
    assert result.exit_code == 0, result.output
    assert "outputs: scores: FP32 [4], brightness: FP32 [1]" in result.stdout
    assert [f"│ {number} " in result.stdout for number in range(4)] == [True, True, True, False]


def test_a_file_that_declares_its_input_needs_no_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "weights")
    onnx.save_model(made([helper.make_node("MatMul", ["x", "weights"], ["y"])], weights=[weights]), str(path))

    result = inspect(str(path))

    assert result.exit_code == 0, result.output
    assert "input: FP32 [4]" in result.stdout
    assert "warning: the model has legal cuts for 1 blocks only, not 10" in result.stdout


def test_a_directory_of_hugging_face_shows_its_blocks(tmp_path: Path) -> None:
    directory = tmp_path / "acme" / "classifier"
    save(directory)

    shape = ["--shape", "6", "--dtype", "INT64", "--blocks", "2"]
    result = inspect(str(directory), "--hugging-face", *shape, "--output", "json")

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["outputs"] == [{"shape": [3], "dtype": "FP32"}]
    assert len(found["blocks"]) == 2


def test_several_inputs_are_shown_by_name(tmp_path: Path) -> None:
    inputs = (NamedInput(name="values", shape=(4,)), NamedInput(name="shift", shape=(1,), dtype=DType.INT16))
    onnx.save_model(exported(late(), inputs, outputs=("sum",)), str(tmp_path / "late.onnx"))
    exported_program = torch.export.export(
        late(),
        tuple(examples(inputs, 2)),
        dynamic_shapes={spec.name: {0: torch.export.Dim("batch", min=1, max=64)} for spec in inputs},
    )
    torch.export.save(exported_program, tmp_path / "late.pt2")
    given = ["--input", "values:FP32:4", "--input", "shift:INT16:1"]
    for arguments, output in (
        ([str(tmp_path / "late.onnx")], "sum: FP32 [4]"),
        ([str(tmp_path / "late.pt2")], "FP32 [4]"),
        (["tests.runtime.models.sample_models:late", *given], "FP32 [4]"),
    ):
        result = inspect(*arguments, "--blocks", "3")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"input: values: FP32 [4]\ninput: shift: INT16 [1]\noutputs: {output}\n")
    found = json.loads(inspect("tests.runtime.models.sample_models:late", *given, "--output", "json").stdout)
    assert "input" not in found
    assert found["inputs"][1] == {"name": "shift", "shape": [1], "dtype": "INT16"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["acme", "--hugging-face"], "acme is no repository of Hugging Face", id="no repository"),
        pytest.param(["a:b", "--task", "fill-mask"], "add --hugging-face", id="a task of an entrypoint"),
        pytest.param(
            [str(RECOGNITION)], "the samples of x are [3, 48, 'any']; give --shape and --dtype", id="open sizes"
        ),
        pytest.param([str(RECOGNITION), "--shape", "3,48"], "its samples are [3, 48, 'any'], not [3, 48]", id="rank"),
        pytest.param([str(RECOGNITION), "--shape", "3,x"], "'3,x' is no shape of a sample", id="no numbers"),
        pytest.param([str(RECOGNITION), "--shape", "0"], "'0' is no shape of a sample", id="no samples"),
        pytest.param(["a:b", "--input", "ids:INT64"], "'ids:INT64' is no input such as", id="an input without sizes"),
        pytest.param(["a:b", "--input", "ids:INT9:4"], "'ids:INT9:4' is no input such as", id="an unknown type"),
        pytest.param(["a:b", "--shape", "3", "--input", "ids:INT64:4"], "--shape is for models of one", id="both"),
        pytest.param(["/nowhere/model.onnx"], "there is no file /nowhere/model.onnx", id="no file"),
        pytest.param(["model.h5"], "name a file (.onnx, .pt2, .pt) or an entrypoint", id="neither"),
        pytest.param(["nowhere:model"], "cannot import nowhere", id="no module"),
        pytest.param(
            ["tests.runtime.models.sample_models:residuals"], "does not declare its input", id="input of an entrypoint"
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: list[str], says: str) -> None:
    result = inspect(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_model_that_kills_its_process_is_named() -> None:
    result = inspect("os:abort", "--shape", "3")
    assert result.exit_code == 2
    assert "the model ended its process" in result.stderr
