"""Bodies of server-side apply. The API server reads them as YAML, and not every JSON text is YAML.

JSON of Python's encoder is, with one exception: a character beyond 16 bits, such as an emoji, becomes two escapes that
are no characters in YAML. The API server refuses such a body.
"""

import json
import re
from typing import Final

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, Payload

_CONTENT_TYPE: Final = "application/apply-patch+yaml"
_ESCAPE: Final = re.compile(r"\\(?:u(?P<pair>d[89ab]..\\ud[c-f]..)|u(?P<half>d[89a-f]..)|.)")
"""An escape of Python's encoder. Two that are one character are found together."""
_NO_CHARACTER: Final = "\ufffd"


async def apply_as_yaml(request: ClientRequest, send: ClientHandlerType) -> ClientResponse:
    """A middleware of aiohttp: bodies of server-side apply become YAML."""
    body = request.body
    if isinstance(body, Payload) and request.headers.get("Content-Type") == _CONTENT_TYPE:
        await request.update_body(as_yaml(body.decode()))
    return await send(request)


def as_yaml(text: str) -> str:
    """JSON of Python's encoder as YAML: the same document, except for halves of characters, which YAML cannot have."""
    return _ESCAPE.sub(_readable, text)


def _readable(escape: re.Match[str]) -> str:
    if escape["pair"]:
        return str(json.loads(f'"{escape[0]}"'))
    return _NO_CHARACTER if escape["half"] else escape[0]
