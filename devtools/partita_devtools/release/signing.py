"""Signatures of images by cosign: made, and verified as a user of the image does."""

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged

SIGNATURE_TYPE: Final = "https://sigstore.dev/cosign/sign/v1"
"""Type of a statement that is a signature, and not something signed about the image."""
_NO_PASSWORD = {"COSIGN_PASSWORD": ""}


@dataclass(frozen=True)
class LocalKey:
    """A key pair that only this machine uses. Its signatures need no service, so nothing leaves the machine."""

    private: Path
    public: Path
    services: Path
    """The signing config of cosign: no services."""
    roots: Path
    """The trusted root of cosign: nobody, so that cosign does not look for its own."""


def new_key(folder: Path, report: Report) -> LocalKey:
    """Make a key in a folder. Raises DevError with the end of the log if cosign fails."""
    key = LocalKey(
        folder / "cosign.key", folder / "cosign.pub", folder / "signing-config.json", folder / "trusted-root.json"
    )
    for command in (
        ["generate-key-pair", "--output-key-prefix", str(key.private.with_suffix(""))],
        ["signing-config", "create", "--out", str(key.services)],
        ["trusted-root", "create", "--out", str(key.roots)],
    ):
        run_logged(
            ["cosign", *command],
            phase=f"cosign {command[0]}",
            log=folder / "key.log",
            report=report,
            environment={**os.environ, **_NO_PASSWORD},
        )
    return key


@dataclass(frozen=True)
class Signer:
    """Signs images in their registry. All methods raise DevError with the end of the log if cosign fails."""

    key: LocalKey | None
    """None: cosign asks the workflow's identity provider, and a public log records the signature."""
    plain_http: bool
    log: Path
    report: Report

    def sign(self, reference: str) -> None:
        """Sign an image by its digest."""
        self._run("sign", reference)

    def attest(self, reference: str, contents: Path) -> None:
        """Sign that an image has these contents, a list in SPDX."""
        self._run("attest", "--type", "spdxjson", "--predicate", str(contents), reference)

    def _run(self, command: str, *words: str) -> None:
        options, environment = ["--yes"], dict(os.environ)
        if (key := self.key) is not None:
            options += ["--key", str(key.private), "--signing-config", str(key.services)]
            options += ["--trusted-root", str(key.roots)]
            environment |= _NO_PASSWORD
        if self.plain_http:
            options += ["--allow-http-registry"]
        run_logged(
            ["cosign", command, *options, *words],
            phase=f"cosign {command}",
            log=self.log,
            report=self.report,
            environment=environment,
        )


def verify_signature(reference: str, key: LocalKey) -> None:
    """Raises DevError if an image in a registry without TLS has no signature by the key.

    cosign itself accepts any signed statement about the image, such as its contents.
    """
    claims = json.loads(_verified(["verify"], reference, key))
    if not any(claim["critical"]["type"] == SIGNATURE_TYPE for claim in claims):
        raise DevError(f"{reference} has signed statements but no signature; sign it with: cosign sign")


def verify_contents(reference: str, key: LocalKey, contents: Path) -> None:
    """Raises DevError if the key has not signed that an image in a registry without TLS has just these contents."""
    lines = _verified(["verify-attestation", "--type", "spdxjson"], reference, key).splitlines()
    statements = [json.loads(base64.b64decode(json.loads(line)["payload"])) for line in lines]
    if json.loads(contents.read_text()) not in [statement["predicate"] for statement in statements]:
        raise DevError(f"the signed contents of {reference} are not those of {contents}")


def _verified(command: list[str], reference: str, key: LocalKey) -> str:
    """What cosign prints of the statements that it has verified."""
    options = ["--key", str(key.public), "--insecure-ignore-tlog", "--allow-http-registry"]
    done = subprocess.run(["cosign", *command, *options, reference], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("Error: ")), done.stderr)
        raise DevError(f"cosign {command[0]} refuses {reference}: {reason.removeprefix('Error: ')}")
    return done.stdout
