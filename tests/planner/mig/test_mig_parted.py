"""Documents for mig-parted: the same documents are accepted and refused as by its reader."""

from typing import Any

import pytest
import yaml

from partita_planner.mig.errors import BadConfigurationError
from partita_planner.mig.mig_parted import parse, render

DOCUMENTED = """
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  filtered:
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
    - device-filter: "0x233110DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.10gb": 7}
  custom:
    - devices: [0, 1]
      mig-enabled: false
    - devices: [2]
      mig-enabled: true
      mig-devices: {"1g.5gb+me": 1, "1c.2g.10gb": 2}
"""
"""Every form that mig-parted's README and examples have."""


def entry(**changes: Any) -> dict[str, Any]:
    made = {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}
    made |= {key.replace("_", "-"): value for key, value in changes.items()}
    return {key: value for key, value in made.items() if value is not None}


def test_documents_as_they_are_documented_are_read() -> None:
    assert set(parse(DOCUMENTED)) == {"all-disabled", "all-enabled", "filtered", "custom"}


def test_what_is_written_is_read_and_the_same_for_the_same() -> None:
    one = {"a": [entry()], "b": [entry(mig_devices={"2g.20gb": 1, "1g.10gb": 1})]}
    other = {"b": [entry(mig_devices={"1g.10gb": 1, "2g.20gb": 1})], "a": [entry()]}
    assert parse(render(one)) == one
    assert render(one) == render(other)


@pytest.mark.parametrize(
    ("document", "want_words"),
    [
        pytest.param({"mig-configs": {"a": [entry()]}}, "version must be v1", id="no version"),
        pytest.param({"version": "v2", "mig-configs": {"a": [entry()]}}, "version must be v1", id="another version"),
        pytest.param({"version": "v1"}, "at least one configuration", id="no configuration"),
        pytest.param({"version": "v1", "mig-configs": {"a": []}}, "at least one entry", id="no entry"),
        pytest.param({"version": "v1", "mig-configs": {"a": [entry()]}, "x": 1}, "not know: x", id="unknown field"),
        pytest.param(entry(gpus=1), "not know: gpus", id="unknown field of an entry"),
        pytest.param(entry(devices=None), "without devices", id="no devices"),
        pytest.param(entry(mig_enabled=None), "without mig-enabled", id="no mode"),
        pytest.param(entry(devices="some"), "`all` or a list", id="devices in words"),
        pytest.param(entry(devices=[True]), "`all` or a list", id="devices that are no numbers"),
        pytest.param(entry(mig_enabled="yes"), "true or false", id="a mode in words"),
        pytest.param(entry(mig_devices=None), "mig-devices is missing", id="no slices"),
        pytest.param(entry(mig_enabled=False), "mig-enabled is false", id="slices without MIG"),
        pytest.param(entry(mig_devices={"10gb": 1}), "not a MIG profile", id="no profile"),
        pytest.param(entry(mig_devices={"1g.10gb": -1}), "0 or more", id="fewer than none"),
        pytest.param(entry(mig_devices={"1g.10gb": 0}), "all counts", id="none at all"),
    ],
)
def test_what_mig_parted_refuses_is_refused(document: dict[str, Any], want_words: str) -> None:
    whole = document if "devices" not in document and "mig-enabled" not in document else None
    text = yaml.safe_dump(whole or {"version": "v1", "mig-configs": {"a": [document]}})
    with pytest.raises(BadConfigurationError, match=want_words):
        parse(text)


def test_a_device_has_one_entry() -> None:
    with pytest.raises(BadConfigurationError, match="twice"):
        render({"a": [entry(), entry(mig_enabled=False, mig_devices=None)]})


def test_text_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(BadConfigurationError, match="not YAML"):
        parse("{")
