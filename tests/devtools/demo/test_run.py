"""A demonstration without a cluster."""

from pathlib import Path

import pytest

from partita_devtools.demo.config import DemoConfig
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.run import run_demo

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "traffic-emulated"


def test_a_cluster_that_does_not_exist_is_an_error_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="partita dev status"):
        run_demo(DemoConfig(example=EXAMPLE, kubeconfig=tmp_path / "none"), print)
