"""Every command with broken files and numbers: an exit code of the documentation, and no traceback."""

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.builders import pool, profile, session
from tests.operator.cli.command_tree import leaf_commands

from partita_devtools.errors import DevError
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

LEAVES = leaf_commands()
ARGUMENTS = {
    "crds": (),
    "plan": ("{manifests}", "--profiles", "{profiles}", "--explain", "0"),
    "mig": ("{demand}", "--time-limit", "1"),
    "subclusters": ("{models}", "--clusters", "2", "--time-limit", "1"),
    "simulate": ("{manifests}", "--profiles", "{profiles}", "--seconds", "1"),
    "profile": ("{manifests}", "--out", "{profiles}", "--module", "none"),
    "model inspect": ("nowhere:model", "--shape", "3"),
    "init": ("nowhere:model", "--shape", "3"),
    "load": ("http://127.0.0.1:1/default/traffic", "--slo-ms", "100", "--seconds", "0.1"),
    "quality": (
        *("http://127.0.0.1:1/default/traffic", "--samples", "{samples}"),
        *("--metric", "Top1", "--limit", "0.9", "--timeout", "1"),
    ),
    "doctor": ("--kubeconfig", "{kubeconfig}"),
    "completion": ("bash",),
    "local up": ("--state-dir", "{empty}"),
    "local status": ("--state-dir", "{empty}"),
    "local down": ("--state-dir", "{empty}"),
    "local apply": ("--state-dir", "{empty}"),
    "local get": ("--state-dir", "{empty}"),
    "local describe": ("isess/traffic", "--state-dir", "{empty}"),
    "local url": ("traffic", "--state-dir", "{empty}"),
    "local delete": ("isess/traffic", "--state-dir", "{empty}"),
    "local logs": ("--state-dir", "{empty}"),
    "dev up": (),
    "dev status": ("--state-dir", "{empty}"),
    "dev down": ("--state-dir", "{empty}"),
    "dev release": ("--dry-run",),
    "dev nodes up": (),
    "dev nodes status": ("--state-dir", "{empty}"),
    "dev nodes image": ("--state-dir", "{empty}", "tag"),
    "dev nodes down": ("--state-dir", "{empty}"),
    "operator run": ("--kubeconfig", "{kubeconfig}"),
    "operator settings": (),
    "explain": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "top": ("--once", "--kubeconfig", "{kubeconfig}"),
    "console": ("--port", "0", "--kubeconfig", "{kubeconfig}"),
    "approve": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "pause": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "resume": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "rollback": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "reprofile": ("isess/traffic", "--kubeconfig", "{kubeconfig}"),
    "demo": ("--example", "{empty}"),
}
"""Arguments of each command with which its other parameters are read."""
STARTING = ("dev up", "dev release", "dev nodes up", "dev nodes image", "demo", "dev down", "dev nodes down")
"""Commands whose files are only handed on; starting and stopping is replaced here."""

BINARY = bytes(range(256))
BROKEN_TEXTS = {
    "empty": b"",
    "binary": BINARY,
    "invalid YAML": b"a: [1",
    "a list": b"[1, 2, 3]",
    "a number": b"42",
    "no date": b"created: 2026-99-99",
    "digits": b"count: " + b"9" * 5000,
    "nesting": b"[" * 5000,
    "no certificate": b"clusters: [{name: k, cluster: {server: 'https://a:1', certificate-authority-data: eA==}}]\n"
    b"contexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {}}]\ncurrent-context: c\n",
    "no kind": b"apiVersion: partita.dev/v1alpha1\nmetadata: {name: a}\n",
    "wrong kind": b"apiVersion: partita.dev/v1alpha1\nkind: Gadget\nmetadata: {name: a}\n",
    "metadata is a list": b"apiVersion: partita.dev/v1alpha1\nkind: GPUPool\nmetadata: [a]\nspec: {}\n",
    "other kind": b"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n",
    "huge integer": b"apiVersion: partita.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: a}\n"
    b"spec: {count: 1" + b"0" * 400 + b"}\n",
    "huge quantity": b"apiVersion: partita.dev/v1alpha1\nkind: GPUPool\nmetadata: {name: a}\n"
    b"spec: {count: 1, pricePerHour: 1" + b"0" * 400 + b"}\n",
    "huge demand": b"product: H100-80GB\nslices: {1g.10gb: 1" + b"0" * 400 + b"}\n",
    "huge model": b"models: [{name: a, rate: 1" + b"0" * 400 + b", staticMemory: 1" + b"0" * 400 + b"}]\n",
}
FIRST = ("binary", "wrong kind")
"""Contents for parameters whose files are read like those of another command."""
READERS = {
    "plan": {"what", "profile_directory", "plan_file"},
    "mig": {"demand", "products_file"},
    "subclusters": {"models"},
    "simulate": {"trace"},
    "explain": {"kubeconfig"},
    "operator settings": {"config_file", "chart_schema"},
    "demo": {"directory"},
    "local apply": {"paths"},
    "quality": {"samples_file"},
}
"""Parameters that are tested with every content."""
VALID = {
    ("local apply", "paths", "huge quantity"),
    ("simulate", "trace", "a number"),
    ("operator settings", "config_file", "empty"),
}
HUGE = ("1" + "0" * 30, "-1" + "0" * 30, "nan", "inf")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Good inputs by name. Nothing is started on this machine."""

    def refuse(*_: object, **__: object) -> None:
        raise DevError("not in this test")

    for target in (
        "cli.local.lifecycle.local_up",
        "cli.local.lifecycle.dev_down",
        "cli.dev.dev_up",
        "cli.dev.dev_down",
        "cli.demo.dev_up",
        "cli.release.dry_run",
        "cli.nodes.start_nodes",
        "cli.nodes.stop_nodes",
        "cli.nodes.find_binaries",
        "cli.nodes.build_image",
    ):
        monkeypatch.setattr(f"partita_devtools.{target}", refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    folders = {name: tmp_path / name for name in ("empty", "manifests", "profiles")}
    for folder in folders.values():
        folder.mkdir()
    files = {name: tmp_path / name for name in ("demand", "models", "kubeconfig", "samples")}
    documents = (pool("fast").gpus(4).build(), session("detection").slo(200).rate(50).model("detector").build())
    (folders["manifests"] / "all.yaml").write_text(
        yaml.safe_dump_all(d.model_dump(mode="json", by_alias=True, exclude={"status"}) for d in documents)
    )
    measured = profile("detector").on("fast").linear(1000, 5000).build()
    (folders["profiles"] / "detector.json").write_text(measured.model_dump_json(by_alias=True, exclude_none=True))
    files["demand"].write_text("product: H100-80GB\nslices: {3g.40gb: 2}\n")
    files["models"].write_text("models: [{name: a, rate: 1, staticMemory: 1Gi}, {name: b, rate: 1, staticMemory: 1Gi}]")
    files["samples"].write_text(
        '{"inputs": [{"name": "x"}], "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0, 1]}]}'
    )
    files["kubeconfig"].write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return folders | files


def run(name: str, places: dict[str, Path], *further: str, instead: str | None = None) -> Result:
    """The command with its arguments; `instead` replaces the positional ones."""
    arguments = [argument.format(**places) for argument in ARGUMENTS[name]]
    if instead is not None:
        arguments[0] = instead
    return invoke(*name.split(), *arguments, *further)


def invoke(*arguments: str) -> Result:
    """`partita` with these arguments; fails for a traceback, and for an exit code that is not documented."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, result.exc_info)
    assert "Traceback" not in result.output
    assert result.exit_code in set(ExitCode), result.output
    return result


def file_parameters(command: click.Command) -> Iterator[click.Parameter]:
    """Parameters that name a file or a folder to read."""
    for parameter in command.params:
        kind = parameter.type
        if (
            isinstance(kind, click.File)
            or (isinstance(kind, click.Path) and kind.exists)
            or (parameter.name == "what" and parameter.nargs == -1)
        ):
            yield parameter


def numbers(command: click.Command) -> list[str]:
    return [
        o.opts[0] for o in command.params if isinstance(o.type, click.types.IntParamType | click.types.FloatParamType)
    ]


def test_every_command_is_walked() -> None:
    assert ARGUMENTS.keys() == LEAVES.keys()


WITH_FILES = [
    pytest.param(name, parameter, id=f"{name} {parameter.name}")
    for name, command in LEAVES.items()
    for parameter in file_parameters(command)
]


@pytest.mark.parametrize(("name", "parameter"), WITH_FILES)
def test_a_missing_file_is_bad_input(name: str, parameter: click.Parameter, places: dict[str, Path]) -> None:
    result = _with_file(name, parameter, places, places["empty"] / "missing")
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert "missing" in result.output


@pytest.mark.parametrize(("name", "parameter"), WITH_FILES)
def test_a_directory_in_place_of_a_file_and_the_other_way_round(
    name: str, parameter: click.Parameter, places: dict[str, Path]
) -> None:
    wants_folder = isinstance(parameter.type, click.Path) and not parameter.type.file_okay
    result = _with_file(name, parameter, places, places["demand"] if wants_folder else places["empty"])
    assert result.exit_code == ExitCode.BAD_INPUT, result.output


WITH_CONTENTS = [
    pytest.param(name, parameter, content, id=f"{name} {parameter.name} {content}")
    for name, command in LEAVES.items()
    for parameter in file_parameters(command)
    for content in (BROKEN_TEXTS if parameter.name in READERS.get(name, ()) else FIRST)
    if (name, parameter.name, content) not in VALID and parameter.name != "python_path"
]


@pytest.mark.parametrize(("name", "parameter", "content"), WITH_CONTENTS)
def test_broken_contents(name: str, parameter: click.Parameter, content: str, places: dict[str, Path]) -> None:
    broken = places["empty"] / "broken"
    if isinstance(parameter.type, click.Path) and not parameter.type.file_okay:
        broken.mkdir()
        (broken / "broken.json").write_bytes(BROKEN_TEXTS[content])
        (broken / "manifests").mkdir()
        (broken / "manifests/broken.yaml").write_bytes(BROKEN_TEXTS[content])
    else:
        broken.write_bytes(BROKEN_TEXTS[content])
    result = _with_file(name, parameter, places, broken)
    if name in STARTING or name == "doctor":
        assert result.exit_code == ExitCode.FAILED, result.output
    else:
        assert result.exit_code == ExitCode.BAD_INPUT, result.output


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(("name", "option"), [(n, o) for n, command in LEAVES.items() for o in numbers(command)])
def test_numbers_have_bounds(name: str, option: str, number: str, places: dict[str, Path]) -> None:
    assert run(name, places, option, number).exit_code == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("simulate", ("--load", "1e300"), id="simulated load"),
        pytest.param("simulate", ("--load", "nan"), id="load that is no number"),
        pytest.param("simulate", ("--load", "0:1,0:2"), id="steps of load"),
        pytest.param("simulate", ("--policy", "None"), id="policy"),
        pytest.param("simulate", ("--fail", "nobody"), id="failure"),
        pytest.param("simulate", ("--random-failures", "1"), id="random failures"),
        pytest.param("subclusters", ("--memory", "much"), id="quantity"),
        pytest.param("plan", ("--compare", ","), id="no strategy"),
        pytest.param("plan", ("--out", "{empty}/no/file"), id="folder of the plans"),
        pytest.param("crds", ("--out", "{demand}/folder"), id="folder below a file"),
        pytest.param("mig", ("--out", "{demand}/folder"), id="folder of MIG files below a file"),
        pytest.param("simulate", ("--executions", "{empty}/no/file"), id="folder of executions"),
        pytest.param("console", ("--host", ""), id="no address of the console"),
        pytest.param("console", ("--host", "192.0.2.1"), id="address of another machine"),
        pytest.param("console", ("--host", "no..name"), id="no name of a host"),
        pytest.param("console", ("--allow-host", "http://console.example.com"), id="URL as a name of a host"),
        pytest.param("dev up", ("--pool", "fast=nan="), id="Ray node"),
        pytest.param("dev nodes up", ("--node", "l4=NVIDIA-L4:x"), id="node"),
    ],
)
def test_texts_that_cannot_be_used_are_bad_input(
    name: str, arguments: tuple[str, ...], places: dict[str, Path]
) -> None:
    result = run(name, places, *(argument.format(**places) for argument in arguments))
    assert result.exit_code == ExitCode.BAD_INPUT, result.output


@pytest.mark.parametrize(
    "url",
    [
        "foo",
        "",
        "ftp://127.0.0.1:1/default/traffic",
        "http://127.0.0.1:8o/default/traffic",
        "http://127.0.0.1:99999/default/traffic",
        "http://[::1/default/traffic",
        "http://127.0.0.1:1",
        "http://127.0.0.1:1/default/two words",
        "http://127.0.0.1:1/default/traffic?x=1",
        "http://127.0.0.1:1/default/tr\u00e4ffic",
        "http://127.0.0.1:1/default/\n",
    ],
)
def test_urls_that_cannot_be_used_are_bad_input(url: str, places: dict[str, Path]) -> None:
    result = run("load", places, instead=url)
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert "give one such as http://127.0.0.1:8000/default/traffic" in result.output


@pytest.mark.parametrize("content", ["binary", "arrays of different lengths", "objects"])
def test_payloads_that_cannot_be_used_are_bad_input(content: str, places: dict[str, Path]) -> None:
    file = places["empty"] / "payload.npz"
    if content == "binary":
        file.write_bytes(BINARY)
    elif content == "objects":
        np.savez(file, a=np.array([{}], dtype=object))
    else:
        np.savez(file, a=np.zeros(2), b=np.zeros(3))
    result = run("load", places, "--payload", str(file))
    assert result.exit_code == ExitCode.BAD_INPUT, result.output


def _with_file(name: str, parameter: click.Parameter, places: dict[str, Path], file: Path) -> Result:
    if (name, parameter.name) == ("plan", "kubeconfig"):
        return invoke("plan", "isess/traffic", "--kubeconfig", str(file))
    if parameter.name == "chart_schema":
        return run(name, places, "--schema", parameter.opts[0], str(file))
    if isinstance(parameter, click.Argument):
        return run(name, places, instead=str(file))
    return run(name, places, parameter.opts[0], str(file))
