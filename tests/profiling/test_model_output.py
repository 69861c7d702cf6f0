"""How the output of a model's process becomes lines of the log."""

import pytest

from partita_profiling.model_output import LONGEST_LINE_BYTES, MOST_OUTPUT_BYTES, ModelOutput

LONG = b"x" * LONGEST_LINE_BYTES


@pytest.mark.parametrize(
    ("chunks", "want"),
    [
        pytest.param([b"one\ntwo\n"], ["model: one", "model: two"], id="lines"),
        pytest.param([b"on", b"e\nt", b"wo\n"], ["model: one", "model: two"], id="lines in several chunks"),
        pytest.param([b"one"], [], id="a line without an end"),
        pytest.param([b"one", b""], ["model: one"], id="a last line without an end"),
        pytest.param([b"one\n", b""], ["model: one"], id="an end after the last line"),
        pytest.param([b"\n"], ["model:"], id="an empty line"),
        pytest.param([b"a\rb\x0bc\x0cd\x1be\n"], ["model: a b c d e"], id="control characters"),
        pytest.param(["a\u2028b\x85c\n".encode()], ["model: a b c"], id="line separators"),
        pytest.param([b"\xff\n"], ["model: \ufffd"], id="not text"),
        pytest.param([LONG + b"y\n"], [f"model: {LONG.decode()}", "model: y"], id="a long line"),
        pytest.param([LONG], [f"model: {LONG.decode()}"], id="a long line without an end"),
    ],
)
def test_output_becomes_prefixed_lines(chunks: list[bytes], want: list[str]) -> None:
    output = ModelOutput()

    assert [line for chunk in chunks for line in output.lines(chunk)] == want


@pytest.mark.parametrize("chunk", [b"\n" * 10_000, b"x" * 65536, b"\xff" * 65536], ids=["empty", "endless", "no text"])
def test_output_beyond_the_limit_is_left_out(chunk: bytes) -> None:
    output = ModelOutput()

    lines = [line for _ in range(64) for line in output.lines(chunk)]

    assert sum(len(line.encode()) + 1 for line in lines) <= MOST_OUTPUT_BYTES + 100
    assert lines[-1] == "model: (further output is left out)"
    assert lines.count(lines[-1]) == 1
