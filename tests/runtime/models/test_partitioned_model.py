"""Cutting models: the blocks together answer like the whole model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.runtime.models.architectures import ARCHITECTURES, IMAGE, lively
from tests.runtime.models.sample_models import branching
from torch.utils import _pytree as pytree

from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.layers import MAX_CROSSING
from partita_runtime.models.partitioned_model import PartitionedModel, partition, partition_source

SMALL = TensorSpec(shape=(3, 16, 16))
HERE = "tests.runtime.models.sample_models"
ROOT = Path(__file__).resolve().parents[3]


def tensors_of(answer: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor)]


def sample(name: str, blocks: int = 4, **kwargs: object) -> PartitionedModel:
    return partition_source(ModelSource(entrypoint=f"{HERE}:{name}", kwargs=kwargs), SMALL, blocks)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_blocks_together_answer_like_the_whole_model(name: str) -> None:
    model = lively(name)
    cut = partition(model, IMAGE, 6)

    assert len(cut.blocks) == 6
    assert all(1 <= len(tensors) <= MAX_CROSSING for tensors in cut.cuts)
    for batch in (1, 3):
        pixels = torch.randn(batch, *IMAGE.shape)
        with torch.no_grad():
            want = tensors_of(model(pixels))
        in_full, in_halves = [pixels], [pixels]
        for block in range(6):
            in_full = cut.run(block, block + 1, in_full)
            # The tensors at the cut are as declared. They are converted to half precision, as on the network.
            for tensor, announced in zip(in_full, cut.boundaries[block + 1], strict=True):
                assert tuple(tensor.shape) == (batch, *announced.shape)
                assert str(tensor.dtype) == f"torch.{announced.dtype}"
            in_halves = cut.run(block, block + 1, in_halves)
            if block < 5:
                in_halves = [t.half().float() if t.is_floating_point() else t for t in in_halves]
        assert len(in_full) == len(want)
        for full, halves, whole in zip(in_full, in_halves, want, strict=True):
            scale = float(whole.abs().max())
            assert scale > 0
            torch.testing.assert_close(full, whole, rtol=1e-4, atol=1e-5 * scale)
            torch.testing.assert_close(halves, whole, rtol=0.0, atol=2e-2 * scale)


def test_digest_differs_between_cuts_and_is_the_same_in_every_process() -> None:
    program = f"""
import json
from partita_api.session.module import ModelSource, TensorSpec
from partita_runtime.models.partitioned_model import partition_source
cut = lambda name, blocks, **kwargs: partition_source(
    ModelSource(entrypoint="{HERE}:" + name, kwargs=kwargs), TensorSpec(shape=(3, 16, 16)), blocks).digest
print(json.dumps([cut("residuals", 4), cut("residuals", 3), cut("residuals", 4, depth=5), cut("branching", 4)]))
"""

    def digests(hash_seed: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[str] = json.loads(run.stdout)
        return found

    first = digests("1")

    assert digests("2") == first
    assert len(set(first)) == len(first)


def test_weights_do_not_change_the_digest() -> None:
    one, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    spec = TensorSpec(shape=(4,))

    assert partition(one.eval(), spec, 1).digest == partition(other.eval(), spec, 1).digest


def test_output_that_is_ready_early_is_sent_to_the_end() -> None:
    cut = sample("residuals")

    assert [len(tensors) for tensors in cut.cuts] == [2, 2, 2]
    assert [spec.shape for spec in cut.outputs] == [(4,), (1,)]


def test_model_with_few_layers_has_fewer_blocks_and_a_warning() -> None:
    cut = sample("residuals", blocks=20, depth=2)

    assert 1 < len(cut.blocks) < 20
    assert f"{len(cut.blocks)} blocks only, not 20" in cut.warnings[0]


def test_model_that_cannot_be_captured_is_one_block_with_a_warning() -> None:
    cut = sample("branching")
    pixels = torch.randn(3, *SMALL.shape)

    assert len(cut.blocks) == 1
    assert "served as one block" in cut.warnings[0]
    with torch.no_grad():
        torch.testing.assert_close(cut.run(0, 1, [pixels])[0], branching()(pixels))


def test_model_that_only_symbolic_tracing_captures_is_cut() -> None:
    class WithScriptedHead(torch.nn.Module):
        """torch.export does not support scripted modules."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
            self.head = torch.jit.script(torch.nn.Linear(8, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.nn.functional.relu(layer(x), inplace=True)
            answer: torch.Tensor = self.head(x)
            return answer

    model = WithScriptedHead().eval()
    x = torch.randn(3, 8)

    cut = partition(model, TensorSpec(shape=(8,)), 3)

    assert len(cut.blocks) == 3
    torch.testing.assert_close(cut.run(0, 3, [x])[0], model(x).detach())


@pytest.mark.parametrize("suffix", ["pt2", "pt"])
def test_model_files_answer_like_the_saved_model(suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Linear(8, 2))
    model.eval()
    path = tmp_path / f"model.{suffix}"
    example = torch.randn(2, 8)
    if suffix == "pt2":
        dynamic = ({0: torch.export.Dim("batch", min=1, max=64)},)
        torch.export.save(torch.export.export(model, (example,), dynamic_shapes=dynamic), path)
    else:
        torch.jit.save(torch.jit.trace(model, example), path)

    cut = partition_source(ModelSource(file=path.as_uri()), TensorSpec(shape=(8,)), 3)

    assert len(cut.blocks) == (3 if suffix == "pt2" else 1)
    for batch in (1, 3):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(cut.run(0, len(cut.blocks), [x])[0], model(x).detach())


def test_exported_file_that_cannot_be_cut_is_one_block(tmp_path: Path) -> None:
    class ScaledByPositives(torch.nn.Module):
        """Returns a number of elements that is known only at run time."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            positive = x[x > 0]
            return x * positive.sum()

    path = tmp_path / "model.pt2"
    dynamic = ({0: torch.export.Dim("batch", min=1, max=64)},)
    torch.export.save(torch.export.export(ScaledByPositives(), (torch.ones(2, 8),), dynamic_shapes=dynamic), path)
    x = torch.randn(3, 8)

    cut = partition_source(ModelSource(file=str(path)), TensorSpec(shape=(8,)), 3)

    assert "served as one block" in cut.warnings[0]
    torch.testing.assert_close(cut.run(0, 1, [x])[0], ScaledByPositives()(x))


def test_kept_blocks_run_and_the_others_are_released() -> None:
    cut = sample("residuals")
    kept = cut.keep(1, 3)
    pixels = torch.randn(2, *SMALL.shape)
    between = cut.run(0, 1, [pixels])

    torch.testing.assert_close(kept.run(1, 3, between), cut.run(1, 3, between))
    with pytest.raises(ModelError, match="blocks 1 to 2 were kept"):
        kept.run(0, 1, [pixels])
    with pytest.raises(ModelError, match="the model has 4"):
        cut.keep(2, 5)


@pytest.mark.parametrize(
    ("source", "reason", "says"),
    [
        pytest.param({"entrypoint": "nowhere.at.all:model"}, "ImportFailed", "add the package", id="no package"),
        pytest.param({"entrypoint": f"{HERE}:missing"}, "ImportFailed", "no callable missing", id="no function"),
        pytest.param({"entrypoint": f"{HERE}:NOT_CALLABLE"}, "ImportFailed", "no callable", id="not callable"),
        pytest.param({"entrypoint": f"{HERE}:raises"}, "ImportFailed", "no weights here", id="raises"),
        pytest.param(
            {"entrypoint": f"{HERE}:residuals", "kwargs": {"size": 3}}, "ImportFailed", "kwargs", id="bad kwargs"
        ),
        pytest.param({"entrypoint": f"{HERE}:no_model"}, "NotAModel", "returned str", id="not a model"),
        pytest.param({"file": "/nowhere/model.pt2"}, "FileUnreadable", "no file", id="no file"),
        pytest.param({"file": "s3://bucket/model.pt2"}, "FileUnreadable", "needs its sha256", id="other scheme"),
        pytest.param(
            {"entrypoint": f"{HERE}:answers", "kwargs": {"kind": "no tensor"}},
            "BadOutput",
            "no tensor",
            id="not a tensor",
        ),
        pytest.param(
            {"entrypoint": f"{HERE}:answers", "kwargs": {"kind": "no batch"}}, "BadOutput", "leading", id="no batch"
        ),
        pytest.param(
            {"entrypoint": f"{HERE}:answers", "kwargs": {"kind": "complex"}},
            "BadOutput",
            "cannot be transported",
            id="complex",
        ),
    ],
)
def test_model_that_cannot_be_served_has_a_message_with_the_fix(
    source: dict[str, object], reason: str, says: str
) -> None:
    with pytest.raises(ModelError, match=says) as raised:
        partition_source(ModelSource.model_validate(source), SMALL, 4)

    assert raised.value.reason == reason


def test_the_model_refuses_input_of_the_wrong_shape() -> None:
    with pytest.raises(ModelError, match="correct the module's input") as raised:
        partition_source(ModelSource(entrypoint=f"{HERE}:residuals"), TensorSpec(shape=(1, 16, 16)), 4)

    assert raised.value.reason is ModelErrorReason.BAD_INPUT


@pytest.mark.parametrize(
    ("content", "says"),
    [pytest.param(b"no zip", "cannot read", id="not an archive")],
)
@pytest.mark.parametrize("suffix", ["pt2", "pt"])
def test_file_that_torch_cannot_read(suffix: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)

    with pytest.raises(ModelError, match=says) as raised:
        partition_source(ModelSource(file=str(path)), SMALL, 4)

    assert raised.value.reason is ModelErrorReason.FILE_UNREADABLE


@pytest.mark.parametrize(
    ("dynamic", "shape", "says"),
    [
        pytest.param(False, (8,), "batches of 2 only", id="fixed batch"),
        pytest.param(True, (9,), r"samples of \['8'\], not \[9\]", id="other shape"),
    ],
)
def test_exported_file_with_another_input(dynamic: bool, shape: tuple[int, ...], says: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    batch = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    torch.export.save(
        torch.export.export(torch.nn.Linear(8, 2).eval(), (torch.randn(2, 8),), dynamic_shapes=batch), path
    )

    with pytest.raises(ModelError, match=says) as raised:
        partition_source(ModelSource(file=str(path)), TensorSpec(shape=shape), 4)

    assert raised.value.reason is ModelErrorReason.BAD_INPUT
