"""`partita model inspect`: a look at models before anything is deployed."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper
from tests.runtime.models.hugging_face.checkpoints import save
from tests.runtime.models.onnx_files import made, packaged

from partita_operator.cli.main import main

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
    assert "outputs: FP32 [4], FP32 [1]" in result.stdout
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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["acme", "--hugging-face"], "acme is no repository of Hugging Face", id="no repository"),
        pytest.param(["a:b", "--task", "fill-mask"], "add --hugging-face", id="a task of an entrypoint"),
        pytest.param([str(RECOGNITION)], "its samples are [3, 48, 'any']; give --shape and --dtype", id="open sizes"),
        pytest.param([str(RECOGNITION), "--shape", "3,48"], "its samples are [3, 48, 'any'], not [3, 48]", id="rank"),
        pytest.param([str(RECOGNITION), "--shape", "3,x"], "'3,x' is no shape of a sample", id="no numbers"),
        pytest.param([str(RECOGNITION), "--shape", "0"], "'0' is no shape of a sample", id="no samples"),
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
