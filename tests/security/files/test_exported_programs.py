"""Programs of torch.export that attack the process that loads them.

Each payload runs if torch alone reads the file: the tests try this first.
"""

import hashlib
import io
import json
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.runtime.models.intruder import Intruder
from tests.security.files.exported_archive import (
    CONSTANTS,
    INPUT,
    PROGRAM,
    SAMPLE_INPUTS,
    WEIGHTS,
    ExportedArchive,
    exported_branches,
    with_partita,
)
from torch._export.serde.schema import SCHEMA_VERSION

from partita_runtime.models.errors import ModelError
from partita_runtime.models.exported.errors import ForbiddenContentError
from partita_runtime.models.exported.expressions import check_expression
from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text

Attack = Callable[[ExportedArchive, Path], ExportedArchive]
"""Changes an archive so that it writes the file at the path."""


def payload(trace: Path) -> str:
    """An expression of Python that writes a file."""
    return f"open('{trace}','w')"


def saved(value: object) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def an_object_among_the_constants(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    return archive.with_member("data/constants/opaque_obj_0", pickle.dumps(Intruder(trace))).with_changed(
        CONSTANTS, lambda document: document["config"].update(spy=entry)
    )


def a_pickled_weight(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    entry = archive.document(WEIGHTS)["config"]["scale"] | {"path_name": "weight_9", "use_pickle": True}
    return archive.with_member("data/weights/weight_9", saved(Intruder(trace))).with_changed(
        WEIGHTS, lambda document: document["config"].update(scale=entry)
    )


def a_pickled_constant(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    entry = archive.document(WEIGHTS)["config"]["scale"] | {"path_name": "tensor_9", "use_pickle": True}
    return archive.with_member("data/constants/tensor_9", saved(Intruder(trace))).with_changed(
        CONSTANTS, lambda document: document["config"].update(spy=entry)
    )


def old_weights(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    return archive.with_member("data/weights/model.pt", saved(Intruder(trace)))


def old_constants(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    return archive.with_member("data/constants/model.pt", saved(Intruder(trace)))


def sample_inputs(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    return archive.with_member(SAMPLE_INPUTS, saved(Intruder(trace)))


def a_native_library(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    source, library = trace.with_name("spy.c"), trace.with_name("spy.so")
    source.write_text(
        "#include <fcntl.h>\n"
        f'__attribute__((constructor)) void run(void) {{ open("{trace}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    place = "data/aotinductor/model/spy.wrapper"
    return archive.with_member(f"{place}.so", library.read_bytes()).with_member(
        f"{place}_metadata.json", json.dumps({"AOTI_DEVICE_KEY": "cpu"}).encode()
    )


def a_shape(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    def change(document: Any) -> None:
        values = document["graph_module"]["graph"]["sym_int_values"]
        next(iter(values.values()))["as_expr"]["expr_str"] = payload(trace)

    return archive.with_changed(PROGRAM, change)


def an_operator_that_opens_files(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    def change(document: Any) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        zeros = next(node for node in nodes if node["target"] == "torch.ops.aten.zeros.default")
        arguments = {"filename": {"as_string": str(trace)}, "shared": {"as_bool": True}, "size": {"as_int": 1}}
        zeros["target"] = "torch.ops.aten.from_file.default"
        zeros["inputs"] = [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()]

    return archive.with_changed(PROGRAM, change)


def the_name_of_an_argument(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    """torch writes the name twice into the source code of a function: once as it is, then at the end of a string."""

    def change(document: Any) -> None:
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        signature["forward_arg_names"] = [f"x):\n    {payload(trace)}\n    '''#"]

    return archive.with_changed(PROGRAM, change)


def the_type_of_an_output(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    """torch imports the module of an enumeration."""
    trace.with_name("spymodule.py").write_text(f"open({str(trace)!r}, 'w')\n")

    def change(document: Any) -> None:
        key = {"__enum__": True, "fqn": "spymodule:Key", "name": "FLAT"}
        leaf = {"type": None, "context": None, "children_spec": []}
        outputs = {"type": "builtins.dict", "context": json.dumps([key, "zeros"]), "children_spec": [leaf, leaf]}
        document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, outputs])

    return archive.with_changed(PROGRAM, change)


def a_guard(archive: ExportedArchive, trace: Path) -> ExportedArchive:
    return archive.with_changed(PROGRAM, lambda document: document["guards_code"].append(payload(trace)))


ATTACKS = [
    pytest.param(an_object_among_the_constants, "opaque_obj_0", id="an object among the constants"),
    pytest.param(a_pickled_weight, "pickled object scale", id="a pickled weight"),
    pytest.param(a_pickled_constant, "pickled object spy", id="a pickled constant"),
    pytest.param(old_weights, "data/weights/model.pt", id="weights of the old format"),
    pytest.param(old_constants, "data/constants/model.pt", id="constants of the old format"),
    pytest.param(a_native_library, "data/aotinductor", id="a native library"),
    pytest.param(a_shape, "the expression", id="a shape"),
    pytest.param(an_operator_that_opens_files, "operator 'torch.ops.aten.from_file", id="an operator that opens files"),
    pytest.param(the_name_of_an_argument, "the name", id="the name of an argument"),
    pytest.param(the_type_of_an_output, "the name", id="the type of an output"),
    # These two are not read.
    pytest.param(sample_inputs, "", id="sample inputs"),
    pytest.param(a_guard, "", id="a guard"),
]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a payload writes."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "trace"


def with_torch_alone(path: Path) -> None:
    with suppress(Exception):
        torch.export.load(path).module()(INPUT)


@pytest.mark.parametrize(("attack", "want_words"), ATTACKS)
def test_a_payload_that_torch_runs_is_not_run(
    attack: Attack, want_words: str, harmless: ExportedArchive, trace: Path
) -> None:
    path = attack(harmless.copy(), trace).written(trace.with_name("m.pt2"))

    with_torch_alone(path)
    assert trace.exists()
    trace.unlink()

    if want_words:
        with pytest.raises(ModelError, match=want_words) as refused:
            with_partita(path)
        assert refused.value.reason == "Forbidden"
        assert "torch.export.save" in str(refused.value)
    else:
        want = exported_branches().module()(INPUT)
        assert all(torch.equal(tensor, want[name]) for name, tensor in with_partita(path).items())
    assert not trace.exists()


def test_no_other_format_is_tried_after_an_error(harmless: ExportedArchive, trace: Path) -> None:
    path = trace.with_name("m.pt2")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", ".".join(map(str, SCHEMA_VERSION)))
        archive.writestr("serialized_exported_program.json", json.dumps(harmless.document(PROGRAM)))
        for name in ("state_dict", "constants", "example_inputs"):
            archive.writestr(f"serialized_{name}.pt", saved(Intruder(trace)))

    with_torch_alone(path)
    assert trace.exists()
    trace.unlink()

    with pytest.raises(ModelError, match="cannot read"):
        with_partita(path)
    assert not trace.exists()


def fields_with_strings(document: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the strings of a document are."""
    if isinstance(document, str):
        yield place
    elif isinstance(document, (list, dict)):
        for key, part in enumerate(document) if isinstance(document, list) else document.items():
            yield from fields_with_strings(part, (*place, key))


def test_no_string_of_a_program_is_run(harmless: ExportedArchive, trace: Path) -> None:
    """One string of each kind becomes a payload."""
    document = harmless.document(PROGRAM)
    kinds = {tuple(key for key in place if isinstance(key, str)): place for place in fields_with_strings(document)}
    assert len(kinds) > 30
    run_by_torch = set()
    for kind, place in kinds.items():

        def attack(changed: Any, place: tuple[str | int, ...] = place) -> None:
            for key in place[:-1]:
                changed = changed[key]
            changed[place[-1]] = payload(trace)

        path = harmless.copy().with_changed(PROGRAM, attack).written(trace.with_name("m.pt2"))
        with suppress(Exception):
            with_partita(path)
        assert not trace.exists(), kind

        with_torch_alone(path)
        if trace.exists():
            run_by_torch.add(kind[-1])
            trace.unlink()
    assert run_by_torch >= {"expr_str"}


def in_the_graph(**changes: Any) -> Callable[[Any], object]:
    return lambda document: document["graph_module"]["graph"].update(changes)


def in_the_first_node(**changes: Any) -> Callable[[Any], object]:
    return lambda document: document["graph_module"]["graph"]["nodes"][0].update(changes)


def a_constant_of_a_class(document: Any) -> None:
    """torch would set the attribute of the class, for all its modules."""
    buffer = {"arg": {"name": "b_scale"}, "buffer_name": "__class__.forward", "persistent": True}
    document["graph_module"]["signature"]["input_specs"].append({"buffer": buffer})


def an_object_of_a_class(document: Any) -> None:
    document["graph_module"]["graph"]["inputs"].append({"as_custom_obj": {"name": "o", "class_fqn": "__torch__.Spy"}})


@pytest.mark.parametrize(
    ("change", "want_words"),
    [
        pytest.param(in_the_first_node(target="torch.os.system"), "operator 'torch.os.system'", id="a function"),
        pytest.param(in_the_first_node(target="torch.ops.load_library"), "load_library", id="loading a library"),
        pytest.param(in_the_first_node(target="torch.ops.aten.save.default"), "aten.save", id="a TorchScript function"),
        pytest.param(in_the_first_node(target="torch.ops.aten.add.__class__"), "__class__", id="a class"),
        pytest.param(in_the_first_node(target="#spy:op"), "'#spy:op'", id="an operator of an extension"),
        pytest.param(in_the_first_node(target="torch.ops.higher_order.while_loop"), "while_loop", id="a loop"),
        pytest.param(in_the_first_node(name="y; import os"), "the name 'y; import os'", id="the name of a node"),
        pytest.param(in_the_graph(tensor_values={"a b": {}}), "", id="the name of a tensor"),
        pytest.param(a_constant_of_a_class, "__class__.forward", id="an attribute of a class"),
        pytest.param(an_object_of_a_class, "CustomObjArgument", id="an object"),
    ],
)
def test_values_that_are_not_listed_are_refused(
    change: Callable[[Any], object], want_words: str, harmless: ExportedArchive, tmp_path: Path
) -> None:
    path = harmless.copy().with_changed(PROGRAM, change).written(tmp_path / "m.pt2")

    with pytest.raises(ModelError, match=want_words):
        with_partita(path)


SYMBOL = "Symbol('s77', positive=True, integer=True)"
BOMB = f"Pow({SYMBOL}, Integer(8))"


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param(SYMBOL, True, id="a symbol"),
        pytest.param(f"Add(Mul(Integer(-3), {SYMBOL}), Integer(1))", True, id="arithmetic"),
        pytest.param(f"Add(FloorDiv(Add({SYMBOL}, Integer(-1)), Integer(2)), Integer(1))", True, id="a division"),
        pytest.param(f"GreaterThan({SYMBOL}, Integer(2))", True, id="a comparison"),
        pytest.param(BOMB, True, id="a power"),
        pytest.param("Symbol('__import__')", False, id="a symbol of another name"),
        pytest.param("Symbol('s77', cls=open)", False, id="a symbol with another argument"),
        pytest.param("open('trace', 'w')", False, id="a call"),
        pytest.param("Add.__class__", False, id="an attribute"),
        pytest.param("[x for x in ()]", False, id="a comprehension"),
        pytest.param("Add(*(1, 2))", False, id="an expansion"),
        pytest.param("9**9**9", False, id="an operator of Python"),
        pytest.param("Pow(Integer(9), Integer(999999999))", False, id="a large power"),
        pytest.param(f"Pow({BOMB}, Integer(8))", False, id="a power of a power"),
        pytest.param(f"Pow(Add({BOMB}, Integer(1)), Integer(8))", False, id="a power in a power"),
        pytest.param(f"Integer({10**30})", False, id="a large integer"),
        pytest.param(f"Pow(Add({SYMBOL}, Integer(1)), Integer(8))", False, id="a large power of a sum"),
        pytest.param("Mul(" + f"Add({SYMBOL}, Integer(1))," * 7 + ")", False, id="a product of many sums"),
        pytest.param(f"Max({'Integer(1),' * 101})", False, id="many terms"),
        pytest.param("LShift(Integer(1), Integer(999999999))", False, id="a shift"),
        pytest.param("Add(" * 5000, False, id="deep nesting"),
        pytest.param("Add(" + "Integer(1)," * 5000 + ")", False, id="a long expression"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_expressions_are_those_that_torch_writes(expression: str, want: bool) -> None:
    if want:
        check_expression(expression)
    else:
        with pytest.raises(ForbiddenContentError):
            check_expression(expression)


def test_a_session_cannot_choose_the_digest_of_a_file_that_the_platform_lists(
    harmless: ExportedArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author replaces the file, and writes the digest of the new one into the session."""
    path = harmless.written(tmp_path / "m.pt2")
    trusted = hashlib.sha256(path.read_bytes()).hexdigest()
    policy = ModelPolicy(files=(f"{tmp_path}/", f"{path}@sha256:{trusted}"), require_digest=True)
    monkeypatch.setenv(VARIABLE, policy_text(policy))
    with_partita(path)
    with_partita(path, sha256=trusted)

    harmless.copy().with_member("extra/note", b"another file").written(path)
    chosen = hashlib.sha256(path.read_bytes()).hexdigest()

    with pytest.raises(ModelError, match=f"must have the digest {trusted}"):
        with_partita(path, sha256=chosen)
    with pytest.raises(ModelError, match=f"its SHA-256 digest is {chosen}"):
        with_partita(path)
