"""Lines of samples: what can be used, and messages that say nothing of what is in them."""

import json

import pytest

from partita_runtime.quality.samples import MAX_SAMPLES, SamplesError, parse_samples

INPUTS = [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1]}]
OUTPUTS = [{"name": "y", "datatype": "BYTES", "shape": [1], "data": ["cat"]}]
SECRET = "hunter2"


def line(**content: object) -> str:
    return json.dumps(content)


def test_a_sample_is_a_request_and_the_expected_outputs() -> None:
    (sample,) = parse_samples(f"\n{line(inputs=INPUTS, outputs=OUTPUTS, parameters={'timeout': 5})}\n\n")

    assert json.loads(sample.request) == {"inputs": INPUTS, "parameters": {"timeout": 5}}
    assert sample.expected["y"].tolist() == [b"cat"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("  \n", "there is no sample", id="empty"),
        pytest.param(f"password: {SECRET}", "line 1 is not JSON", id="other content"),
        pytest.param("[" * 100_000, "line 1 is not JSON", id="deep nesting"),
        pytest.param(f'["{SECRET}"]', "line 1 has no `inputs`", id="a list"),
        pytest.param(line(inputs=[], outputs=OUTPUTS), "line 1 has no `inputs`", id="no inputs"),
        pytest.param(line(inputs=INPUTS, outputs=[]), "line 1 has no usable `outputs`", id="no outputs"),
        pytest.param(line(inputs=INPUTS), "line 1 has no usable `outputs`", id="outputs are missing"),
        pytest.param(
            line(inputs=INPUTS, outputs=[{"name": "y", "datatype": "FP32", "shape": [1], "data": [SECRET]}]),
            "line 1 has no usable `outputs`",
            id="a text among numbers",
        ),
        pytest.param(
            f"{line(inputs=INPUTS, outputs=OUTPUTS)}\n{SECRET}", "line 2 is not JSON", id="the second line is wrong"
        ),
        pytest.param("1\n" * (MAX_SAMPLES + 1), f"use at most {MAX_SAMPLES}", id="too many"),
    ],
)
def test_what_cannot_be_used_is_refused_without_repeating_it(text: str, why: str) -> None:
    with pytest.raises(SamplesError, match=why) as refused:
        parse_samples(text)
    assert SECRET not in str(refused.value)
