"""`partita init`: the first manifest of a model, which can be applied as it is."""

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import yaml
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper
from tests.crds.conftest import ApiServer, cluster, server
from tests.operator.cli.command_tree import leaf_commands
from tests.runtime.models.hugging_face.checkpoints import save
from tests.runtime.models.onnx_files import exported, made
from tests.runtime.models.sample_models import late

from partita_api.inferencesession import InferenceSession
from partita_api.manifests import parse_manifests
from partita_api.session.module import DType, HuggingFaceTask, ImageLayout, ModelSource, NamedInput, TensorSpec
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_operator.cli.offline.first_manifest import FirstSession, image_layout, name_from

__all__ = ["cluster", "server"]
MODEL = "tests.runtime.models.sample_models:residuals"
SHAPE = ("--shape", "3,16,16")


def init(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["init", *(str(argument) for argument in arguments)])


def session_in(text: str) -> InferenceSession:
    (found,) = parse_manifests(text, "the output").sessions
    return found


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """A model that declares its input: four numbers."""
    path = tmp_path / "Shop Model.v2.onnx"
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "weights")
    onnx.save_model(made([helper.make_node("MatMul", ["x", "weights"], ["y"])], weights=[weights]), str(path))
    return path


def test_a_file_declares_what_the_manifest_needs(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(onnx_file.parent)
    result = init(onnx_file.name, "--slo-ms", "80", "--rate", "7")

    assert result.exit_code == ExitCode.OK, result.output
    found = session_in(result.stdout)
    (module,) = found.spec.modules
    assert (found.metadata.name, module.name) == ("shop-model-v2", "shop-model-v2")
    assert module.model == ModelSource(file=str(onnx_file)), "replicas run in other directories"
    assert module.input == TensorSpec(shape=(4,))
    assert (found.spec.slo.latency_ms, found.spec.rate.requests_per_second) == (80, 7)
    assert hashlib.sha256(onnx_file.read_bytes()).hexdigest() in result.stdout
    assert "Outputs: y: FP32 [4]." in result.stdout
    assert "a default; milliseconds" not in result.stdout


def test_an_exported_program_and_its_digest(tmp_path: Path) -> None:
    """What is commented out is right as well."""
    program = torch.export.export(
        torch.nn.Linear(4, 2), (torch.zeros(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, tmp_path / "linear.pt2")

    result = init(tmp_path / "linear.pt2")

    assert result.exit_code == ExitCode.OK, result.output
    with_digest = session_in(result.stdout.replace("# sha256:", "sha256:"))
    assert with_digest.spec.modules[0].model == ModelSource(
        file=str(tmp_path / "linear.pt2"), sha256=hashlib.sha256((tmp_path / "linear.pt2").read_bytes()).hexdigest()
    )


def test_an_entrypoint_with_defaults_to_check() -> None:
    result = init(MODEL, *SHAPE)

    assert result.exit_code == ExitCode.OK, result.output
    found = session_in(result.stdout)
    assert found.spec.modules[0].model == ModelSource(entrypoint=MODEL)
    assert (found.spec.slo.latency_ms, found.spec.rate.requests_per_second) == (200, 50)
    assert result.stdout.count("check: a default; ") == 2
    with_image = session_in(result.stdout.replace("# image:", "image:"))
    assert with_image.spec.modules[0].image_channels == 3


@pytest.mark.parametrize(
    ("inputs", "want"),
    [
        pytest.param((TensorSpec(shape=(128,), dtype=DType.INT64),), True, id="tokens"),
        pytest.param(
            (
                NamedInput(name="input_ids", shape=(128,), dtype=DType.INT64),
                NamedInput(name="attention_mask", shape=(128,), dtype=DType.INT64),
            ),
            True,
            id="tokens and their mask",
        ),
        pytest.param(
            (
                NamedInput(name="input_ids", shape=(128,), dtype=DType.INT64),
                NamedInput(name="language", shape=(1,), dtype=DType.INT64),
            ),
            False,
            id="a number beside the tokens",
        ),
        pytest.param((TensorSpec(shape=(128,)),), False, id="numbers"),
        pytest.param((TensorSpec(shape=(1,), dtype=DType.INT64),), False, id="one number"),
    ],
)
def test_tokens_may_be_of_any_number(inputs: tuple[TensorSpec, ...], want: bool) -> None:
    """A comment says how; with what it says, the manifest is valid."""
    named = tuple(spec for spec in inputs if isinstance(spec, NamedInput))
    model = ModelSource(hugging_face="acme/model")
    text = FirstSession(name="m", model=model, inputs=named or inputs[0], outputs="logits").text()
    assert ("# sizes: [{size: 32}, {size: 128}]" in text) == want
    document = yaml.safe_load(text.replace("# sizes:", "sizes:"))
    if want:
        (module,) = document["spec"]["modules"]
        for tensor in module.get("inputs", [module.get("input")]):
            tensor["variableDimension"] = 0
    assert (InferenceSession.model_validate(document).spec.modules[0].sizes is not None) == want


def test_several_inputs_have_their_names(tmp_path: Path) -> None:
    inputs = (NamedInput(name="values", shape=(4,)), NamedInput(name="shift", shape=(1,), dtype=DType.INT16))
    onnx.save_model(exported(late(), inputs, outputs=("sum",)), str(tmp_path / "late.onnx"))
    given = ("--input", "values:FP32:4", "--input", "shift:INT16:1")

    for arguments in ((tmp_path / "late.onnx",), ("tests.runtime.models.sample_models:late", *given)):
        result = init(*arguments)
        assert result.exit_code == ExitCode.OK, result.output
        (module,) = session_in(result.stdout).spec.modules
        assert module.inputs == inputs


def test_a_repository_with_its_task(tmp_path: Path) -> None:
    directory = tmp_path / "acme" / "classifier"
    save(directory)
    shape, task = ("--shape", "6", "--dtype", "INT64"), HuggingFaceTask.TEXT_CLASSIFICATION

    result = init(directory, "--hugging-face", *shape, "--task", task)

    assert result.exit_code == ExitCode.OK, result.output
    found = session_in(result.stdout)
    assert found.metadata.name == "classifier"
    (module,) = found.spec.modules
    assert module.model == ModelSource(hugging_face="acme/classifier", task=task)
    assert module.input == TensorSpec(shape=(6,), dtype=DType.INT64)


@pytest.mark.parametrize("revision", [None, "1.0", "v2"])
def test_the_commit_of_a_repository_is_proposed_unless_a_revision_is_given(revision: str | None) -> None:
    commit = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    model = ModelSource(hugging_face="acme/classifier", revision=revision)
    text = FirstSession("classifier", model, TensorSpec(shape=(6,)), "FP32 [4]", content=commit).text()

    assert session_in(text).spec.modules[0].model == model
    assert ("# revision:" in text) == (revision is None)
    uncommented = session_in(text.replace("# revision:", "revision:"))
    assert uncommented.spec.modules[0].model.revision == (revision or commit)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([MODEL], "give --shape and --dtype", id="unknown dimensions"),
        pytest.param([MODEL, *SHAPE, "--name", "Shop_1"], "'Shop_1' is no name for a session", id="a bad name"),
        pytest.param([MODEL, *SHAPE, "--name", "a" * 41], "at most 40", id="a long name"),
        pytest.param(["/models/___.onnx"], "give one with --name", id="no letters in the name of the file"),
        pytest.param([MODEL, "--task", "fill-mask"], "add --hugging-face", id="a task of an entrypoint"),
        pytest.param(["model.h5"], "name a file (.onnx, .pt2, .pt) or an entrypoint", id="no model"),
        pytest.param(["/nowhere/model.onnx"], "there is no file /nowhere/model.onnx", id="no file"),
        pytest.param([MODEL, *SHAPE, "--slo-ms", "0"], "--slo-ms", id="an SLO of 0"),
        pytest.param([MODEL, *SHAPE, "--rate", "0.5"], "--rate", id="half a request"),
        pytest.param([MODEL, "--shape", "9,2097152"], "is no shape of a sample", id="a shape that no session may have"),
        pytest.param([MODEL, *SHAPE, "--out", "/nowhere/shop.yaml"], "/nowhere/shop.yaml", id="no folder"),
    ],
)
def test_what_is_missing_is_asked_for(arguments: list[str], says: str) -> None:
    result = init(*arguments)

    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert says in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_file_is_only_overwritten_by_force(tmp_path: Path) -> None:
    out = tmp_path / "shop.yaml"
    out.write_text("mine")

    refused = init(MODEL, *SHAPE, "--out", out)
    assert (refused.exit_code, out.read_text()) == (ExitCode.BAD_INPUT, "mine")
    assert "--force" in refused.stderr

    forced = init(MODEL, *SHAPE, "--out", out, "--force")
    assert (forced.exit_code, forced.stdout) == (ExitCode.OK, "")
    assert session_in(out.read_text()).metadata.name == "residuals"


def test_a_dangling_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").symlink_to(tmp_path / "elsewhere.yaml")

    assert init(MODEL, *SHAPE, "--out", tmp_path / "shop.yaml").exit_code == ExitCode.BAD_INPUT
    assert os.listdir(tmp_path) == ["shop.yaml"]


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param(ModelSource(file="models/PP-OCRv6_rec.onnx"), "pp-ocrv6-rec", id="a path"),
        pytest.param(ModelSource(entrypoint="shop.models:vehicle_classifier"), "vehicle-classifier", id="a function"),
        pytest.param(ModelSource(file="_private.pt2"), "private", id="a leading dash"),
        pytest.param(ModelSource(file="s3://models/shop.v2.pt"), "shop-v2", id="a URI"),
        pytest.param(ModelSource(file=f"{'a' * 39}-b.pt"), "a" * 39, id="cut at a dash"),
        pytest.param(ModelSource(file="модель.onnx"), "", id="no ASCII letters"),
        pytest.param(ModelSource(hugging_face="BAAI/bge-small-en-v1.5"), "bge-small-en-v1-5", id="a repository"),
    ],
)
def test_names_from_sources(model: ModelSource, want: str) -> None:
    assert name_from(model) == want


@pytest.mark.parametrize(
    ("shape", "dtype", "want"),
    [
        pytest.param((3, 8, 8), DType.FP32, ImageLayout.CHW, id="channels first"),
        pytest.param((8, 8, 1), DType.UINT8, ImageLayout.HWC, id="channels last"),
        pytest.param((8, 8, 8), DType.FP32, None, id="no channels"),
        pytest.param((3, 8), DType.FP32, None, id="two dimensions"),
        pytest.param((3, 8, 8), DType.INT64, None, id="whole numbers"),
    ],
)
def test_what_looks_like_an_image(shape: tuple[int, ...], dtype: DType, want: ImageLayout | None) -> None:
    assert image_layout(TensorSpec(shape=shape, dtype=dtype)) == want


@pytest.mark.parametrize("path", ["/models/a: b #1.pt2", "/models/- 'quoted' \"twice\".pt2", "/models/ключ.pt2"])
def test_any_name_of_a_file_is_quoted(path: str) -> None:
    text = FirstSession("on", ModelSource(file=path), TensorSpec(shape=(4,)), "FP32 [4]").text()

    assert session_in(text).spec.modules[0].model == ModelSource(file=path)
    assert session_in(text).metadata.name == "on", "a boolean of YAML"


@pytest.mark.apiserver
def test_the_api_server_takes_it(server: ApiServer) -> None:
    assert server.complaints(yaml.safe_load(init(MODEL, *SHAPE).stdout)) == []


def test_it_is_a_command() -> None:
    assert "init" in leaf_commands()
