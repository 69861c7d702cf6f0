"""Wheels that tests make."""

import hashlib
import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, code: str) -> str:
    """Write a wheel with one package of this code, and return the wheel's SHA-256."""
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}/__init__.py": code,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{name}-{version}.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
