"""`helm` as the pages use it, with Helm's SDK: `python -m tests.docs.helm install NAME CHART ...`."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from helm_python.config import Config


def main() -> None:
    """Run one command. Options that the pages do not use are errors."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("install", "upgrade", "history", "rollback", "uninstall"):
        command = commands.add_parser(name)
        command.add_argument("release")
        command.add_argument("--namespace", "-n", default="default")
        if name in ("install", "upgrade"):
            command.add_argument("chart", type=Path)
            command.add_argument("--values", "-f", type=Path, action="append", default=[])
            command.add_argument("--set", action="append", default=[])
    commands.choices["install"].add_argument("--create-namespace", action="store_true")
    commands.choices["upgrade"].add_argument("--reuse-values", action="store_true")
    given = parser.parse_args()

    with Config(kubeconfig_path=os.environ["KUBECONFIG"], namespace=given.namespace) as helm:
        match given.command:
            case "install":
                chart, values = str(given.chart), merged(given.values, given.set)
                helm.install(chart, given.release, values, create_namespace=given.create_namespace)
            case "upgrade":
                chart, values = str(given.chart), merged(given.values, given.set)
                helm.upgrade(chart, given.release, values, reuse_values=given.reuse_values)
            case "history":
                print(helm.history(given.release))
            case "rollback":
                helm.rollback(given.release)
            case _:
                helm.uninstall(given.release)


def merged(files: Iterable[Path], settings: Iterable[str]) -> dict[str, Any]:
    """Values of files, and of settings such as `profiling.attempts=5`; later ones win."""
    values: dict[str, Any] = {}
    for file in files:
        merge(values, yaml.safe_load(file.read_text()))
    for setting in settings:
        path, _, text = setting.partition("=")
        # Helm reads {a,b} as a list.
        value: Any = text[1:-1].split(",") if text.startswith("{") else yaml.safe_load(text)
        for key in reversed(path.split(".")):
            value = {key: value}
        merge(values, value)
    return values


def merge(values: dict[str, Any], others: dict[str, Any]) -> None:
    for key, other in others.items():
        if isinstance(other, dict) and isinstance(values.get(key), dict):
            merge(values[key], other)
        else:
            values[key] = other


if __name__ == "__main__":
    main()
