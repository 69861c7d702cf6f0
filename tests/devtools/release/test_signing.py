"""Signatures by the real cosign in a real registry: only what the key has signed is accepted."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.devtools.release.images import push_empty_image

from partita_devtools.errors import DevError
from partita_devtools.release.programs import PROGRAMS
from partita_devtools.release.registry import local_registry
from partita_devtools.release.signing import LocalKey, Signer, new_key, verify_contents, verify_signature


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    skip_without("docker-registry")
    with local_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> LocalKey:
    skip_without("cosign")
    return new_key(tmp_path_factory.mktemp("key"), print)


@pytest.fixture
def signer(key: LocalKey, tmp_path: Path) -> Signer:
    return Signer(key, plain_http=True, log=tmp_path / "log", report=print)


@pytest.fixture
def contents(tmp_path: Path) -> Path:
    return written(tmp_path / "contents.json", "partita")


def skip_without(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program}: {PROGRAMS[program]}")


def written(path: Path, package: str) -> Path:
    path.write_text(json.dumps({"spdxVersion": "SPDX-2.3", "packages": [{"name": package}]}))
    return path


def test_a_signed_image_is_accepted_without_any_service(key: LocalKey, registry: str, signer: Signer) -> None:
    image = push_empty_image(registry, "signed")
    signer.sign(image)

    verify_signature(image, key)
    assert "WARNING" not in signer.log.read_text()  # of services that cosign looked for


def test_an_image_without_a_signature_is_refused(key: LocalKey, registry: str) -> None:
    image = push_empty_image(registry, "unsigned")

    with pytest.raises(DevError, match=f"^cosign verify refuses {image}: no signatures found"):
        verify_signature(image, key)


def test_a_signature_by_another_key_is_refused(signer: Signer, registry: str, tmp_path: Path) -> None:
    image = push_empty_image(registry, "foreign")
    signer.sign(image)

    with pytest.raises(DevError, match=f"^cosign verify refuses {image}: "):
        verify_signature(image, new_key(tmp_path, print))


def test_signed_contents_are_no_signature(key: LocalKey, registry: str, signer: Signer, contents: Path) -> None:
    image = push_empty_image(registry, "attested")
    signer.attest(image, contents)

    with pytest.raises(DevError, match="no signature; sign it with: cosign sign"):
        verify_signature(image, key)


def test_only_the_signed_contents_are_accepted(
    key: LocalKey, registry: str, signer: Signer, contents: Path, tmp_path: Path
) -> None:
    image = push_empty_image(registry, "listed")
    signer.sign(image)
    with pytest.raises(DevError, match=f"^cosign verify-attestation refuses {image}: "):
        verify_contents(image, key, contents)

    signer.attest(image, contents)

    verify_signature(image, key)
    verify_contents(image, key, contents)
    with pytest.raises(DevError, match="are not those of"):
        verify_contents(image, key, written(tmp_path / "others.json", "torch"))
