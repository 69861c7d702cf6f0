"""`partita mig`: packings in every format, files, and messages about bad input."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.manifests import parse_manifests
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main
from partita_planner.mig.partitioning import desired_partitioning
from partita_planner.mig.products import known_products

SLICES = "product: H100-80GB\nslices: {3g.40gb: 2, 1g.10gb: 1}\n"
MODEL = """
product: A100-40GB
gpus: 2
models:
  - name: m
    queriesPerSecond: 50
    batches: {1: 20, 2: 20, 3: 40, 4: 20}
    slices:
      1g.5gb: {throughput: {1: 40, 2: 20}, utilization: {1: 0.5, 2: 0.8}}
      2g.10gb: {throughput: {1: 45, 2: 38, 3: 30, 4: 20}, utilization: {3: 0.7, 4: 0.8}}
"""


def mig(directory: Path, demand: str, *arguments: str | Path) -> Result:
    file = directory / "demand.yaml"
    file.write_text(demand)
    return CliRunner().invoke(main, ["mig", str(file), *map(str, arguments)])


def test_fewest_gpus_for_slices(tmp_path: Path) -> None:
    result = mig(tmp_path, SLICES, "-o", "json")

    answer = json.loads(result.stdout)
    assert (answer["gpus"], answer["bound"]) == (2, 2)
    assert [i["count"] for i in answer["instances"]] == [1, 2]


@pytest.mark.parametrize("strategy", ["exact", "paris"])
def test_most_throughput_from_given_gpus(tmp_path: Path, strategy: str) -> None:
    result = mig(tmp_path, MODEL, "--strategy", strategy, "-o", "yaml")

    answer = yaml.safe_load(result.stdout)
    assert answer["gpus"] <= 2
    assert answer["scale"] > 0
    assert {i["model"] for i in answer["instances"]} == {"m"}


def test_table_shows_how_to_apply_it(tmp_path: Path) -> None:
    result = mig(tmp_path, MODEL)

    assert result.exit_code == ExitCode.OK
    assert "A100-40GB" in result.stdout
    assert "partita.dev/mig-fleet=mig" in result.stdout


def test_mig_parted_and_kubectl_can_read_the_files(tmp_path: Path) -> None:
    result = mig(tmp_path, SLICES, "--out", tmp_path / "out")

    assert result.exit_code == ExitCode.OK, result.output
    config = yaml.safe_load((tmp_path / "out" / "mig-parted.yaml").read_text())
    pools = parse_manifests((tmp_path / "out" / "pools.yaml").read_text(), "pools.yaml").pools
    assert (config["version"], list(config["mig-configs"])) == ("v1", ["mig-1"])
    assert {pool.spec.resource_name for pool in pools} == {"nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"}
    assert all(pool.spec.sharing.mode is SharingMode.MIG for pool in pools)


def test_example_is_packed() -> None:
    example = Path(__file__).resolve().parents[4] / "examples" / "mig" / "demand.yaml"

    result = CliRunner().invoke(main, ["mig", str(example), "-o", "json"])

    answer = json.loads(result.stdout)
    assert answer["gpus"] == 8
    assert answer["scale"] > 1
    assert answer["scale"] == pytest.approx(answer["bound"])


def test_products_from_a_file(tmp_path: Path) -> None:
    products = tmp_path / "products.yaml"
    products.write_text(
        "products: [{name: mine, compute: 2, memorySlices: 2, "
        "slices: [{name: 1g.1gb, compute: 1, size: 1, starts: [0, 1], memory: 1Gi}]}]"
    )

    result = mig(tmp_path, "product: mine\nslices: {1g.1gb: 3}", "--products", products, "-o", "json")

    assert json.loads(result.stdout)["gpus"] == 2


def test_no_packing_is_exit_code_3(tmp_path: Path) -> None:
    result = mig(tmp_path, SLICES + "gpus: 1\n", "-o", "json", "--out", tmp_path / "out")

    assert result.exit_code == ExitCode.NO_PLAN
    assert json.loads(result.stdout)["gpusMissing"] == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("demand", "want_message"),
    [
        pytest.param("product: V100\nslices: {1g.5gb: 1}", "product 'V100' is unknown", id="unknown product"),
        pytest.param("product: H100-80GB\nslices: {1g.5gb: 1}", "no MIG profile '1g.5gb'", id="unknown slice"),
        pytest.param("product: H100-80GB", "exactly one of models and slices", id="no demand"),
        pytest.param("product: H100-80GB\nslices: {1g.10gb: 0}", "no load", id="no slices"),
        pytest.param(SLICES + "gpus: 0\n", "greater than or equal to 1", id="no GPUs"),
        pytest.param(MODEL.replace("{1: 20, 2: 20, 3: 40, 4: 20}", "{}"), "at least 1", id="empty distribution"),
        pytest.param(MODEL.replace("3: 40", "3: .nan"), "batches", id="not a number"),
        pytest.param(MODEL.replace("1: 20, 2: 20, 3: 40, 4: 20", "1: 0"), "all weights", id="no weight"),
        pytest.param(MODEL.replace("1g.5gb", "1g.6gb"), "no MIG profile '1g.6gb'", id="a slice that the product lacks"),
        pytest.param(MODEL.replace("4: 20}", "5: 20}", 1), "no slice that it can run on", id="batch not measured"),
        pytest.param("[", "is not YAML", id="not YAML"),
        pytest.param("- 1", "not a valid demand for MIG slices", id="not a mapping"),
    ],
)
def test_bad_input_is_exit_code_2(tmp_path: Path, demand: str, want_message: str) -> None:
    result = mig(tmp_path, demand, "--out", tmp_path / "out")

    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert want_message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("demand", [SLICES + "gpus: 2\n", MODEL.replace("gpus: 2", "")], ids=["slices", "no GPUs"])
def test_paris_reports_missing_inputs(tmp_path: Path, demand: str) -> None:
    result = mig(tmp_path, demand, "--strategy", "paris")

    assert result.exit_code == ExitCode.BAD_INPUT
    assert "give gpus" in result.stderr


def test_bad_products_file(tmp_path: Path) -> None:
    products = tmp_path / "products.yaml"
    products.write_text("products: nothing")

    result = mig(tmp_path, SLICES, "--products", products)

    assert result.exit_code == ExitCode.BAD_INPUT
    assert "not a valid table of MIG products" in result.stderr


def test_managed_pools_have_the_layouts_of_the_packing(tmp_path: Path) -> None:
    result = mig(tmp_path, SLICES, "--managed", "--out", tmp_path / "out")

    assert result.exit_code == ExitCode.OK
    pools = [GPUPool.model_validate(p) for p in yaml.safe_load_all((tmp_path / "out/pools.yaml").read_text())]
    first, *others = pools
    assert first.spec.mig is not None
    assert [(layout.nodes, layout.cut) for layout in first.spec.mig.layouts] == [(1, 2)]
    assert all(pool.spec.mig is None for pool in others)
    assert all(pool.spec.count is None for pool in pools), "slices are counted when they exist"
    assert all(pool.spec.node_selector == first.spec.node_selector for pool in others)
    (cut,) = desired_partitioning(first.metadata.name, first.spec.mig, known_products()).configurations
    offered = yaml.safe_load((tmp_path / "out/mig-parted.yaml").read_text())["mig-configs"]
    assert [cut.entries] == list(offered.values())
    assert {pool.spec.resource_name for pool in pools} == set(cut.resources)
