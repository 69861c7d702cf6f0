"""The credentials that a request log sends to its sink, from the file of a Secret that the frontend's pod mounts."""

import base64
from pathlib import Path
from typing import Final

from partita_api.session.request_log import AuthorizationType, SinkAuthorization

DIRECTORY: Final = "/etc/partita/request-log"
"""Where pods of frontends have a directory for each Secret."""
MAX_BYTES: Final = 8192
"""Of the value of a key; servers accept no larger header."""


class CredentialsError(Exception):
    """There are no credentials that can be sent; the message names the Secret and says what to do."""


class AuthorizationHeader:
    """The value of the Authorization header. The file is read again after it has changed."""

    def __init__(self, authorization: SinkAuthorization) -> None:
        self._authorization = authorization
        self._state: tuple[int, int] | None = None
        """What identifies the content that was read last."""
        self._value = ""
        self._problem = ""

    def current(self) -> str:
        """The value now. Raises CredentialsError."""
        file = credentials_file(self._authorization)
        try:
            found = file.stat()
            state = (found.st_ino, found.st_mtime_ns)
            if state != self._state:
                self._read(file)
                self._state = state
        except OSError as error:
            self._state = None
            raise CredentialsError(
                f"frontends find no key {self._authorization.key} of Secret {self._authorization.secret_name} at "
                f"{file}. Create the Secret, with this key"
            ) from error
        if self._problem:
            raise CredentialsError(self._problem)
        return self._value

    def _read(self, file: Path) -> None:
        self._value = ""
        with file.open("rb") as opened:
            value = opened.read(MAX_BYTES + 1).strip()
        self._problem = _problem(self._authorization, value)
        if not self._problem:
            self._value = _header(self._authorization.type, value)


def credentials_file(authorization: SinkAuthorization) -> Path:
    """Where frontends read the key of the Secret."""
    return Path(DIRECTORY) / authorization.secret_name / authorization.key


def _problem(authorization: SinkAuthorization, value: bytes) -> str:
    """Why a value cannot be in a header; empty if it can. It repeats nothing of the value."""
    if not value:
        why = "is empty"
    elif len(value) > MAX_BYTES:
        why = f"has more than {MAX_BYTES} bytes"
    elif authorization.type is AuthorizationType.BASIC:
        why = "" if b":" in value and _is_printable(value) else "is not one line user:password"
    else:
        why = "" if all(0x21 <= byte <= 0x7E for byte in value) else "has other than visible ASCII characters"
    if not why:
        return ""
    return f"key {authorization.key} of Secret {authorization.secret_name} {why}. Replace its value"


def _is_printable(value: bytes) -> bool:
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _header(type: AuthorizationType, value: bytes) -> str:
    sent = base64.b64encode(value) if type is AuthorizationType.BASIC else value
    return f"{type} {sent.decode('ascii')}"
