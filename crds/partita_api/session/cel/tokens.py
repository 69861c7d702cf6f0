"""The words of an expression."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from partita_api.session.cel.values import ExpressionError


class TokenKind(StrEnum):
    """What a word is."""

    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """One word of an expression."""

    kind: TokenKind
    text: str
    position: int
    """Of its first character, from 1."""

    def __str__(self) -> str:
        return "the end" if self.kind is TokenKind.END else self.text


_BLANK: Final = re.compile(r"(?:[ \t\n\f\r]|//[^\n]*)*")
_WORD: Final = re.compile(
    r"""
    (?P<number> 0x[0-9a-fA-F]+ | (?: [0-9]+ \. [0-9]+ | \. [0-9]+ | [0-9]+ ) (?: [eE] [+-]? [0-9]+ )? )
  | (?P<text> " (?: [^"\\\n\r] | \\. )* " | ' (?: [^'\\\n\r] | \\. )* ' )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<sign> && | \|\| | [=!<>]= | [-+*/%<>!?:.,()\[\]] )
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {"\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?", "n": "\n", "r": "\r", "t": "\t"}


def tokens(text: str) -> Iterator[Token]:
    """The words of an expression in order, and its end. Raises ExpressionError for what is none."""
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at == len(text):
            yield Token(TokenKind.END, "", at + 1)
            return
        word = _WORD.match(text, at)
        if word is None or word.lastgroup is None:
            raise ExpressionError(f"at character {at + 1}: {text[at]!r} has no meaning in expressions")
        yield Token(TokenKind(word.lastgroup), word[0], at + 1)
        at = word.end()


def text_of(token: Token) -> str:
    """What a text in quotes stands for. Raises ExpressionError."""

    def unescaped(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise ExpressionError(
                f"at character {token.position}: \\{found[1]} is unknown in a text; write \\\\ for \\"
            )
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", unescaped, token.text[1:-1], flags=re.DOTALL)
