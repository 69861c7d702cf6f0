"""Numbers in specs that may be negative, without floats: `-1`, `"-2.118"`."""

import re
from decimal import Decimal
from typing import Final, Self

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from partita_api.fields.kept_text import KeptText

NUMBER_PATTERN: Final = r"^-?[0-9]{1,15}(\.[0-9]{1,9})?$"
_MAX_LENGTH: Final = 26


class SignedNumber(KeptText):
    """A number, kept as written. Raises ValueError for what the pattern in the CRDs does not match."""

    def __new__(cls, raw: "int | float | str") -> Self:
        text = str(raw)
        if re.fullmatch(NUMBER_PATTERN, text) is None:
            raise ValueError(f"{text!r} is not a number: write digits, with at most 15 before and 9 after the point")
        return super().__new__(cls, text)

    @property
    def value(self) -> Decimal:
        """The number that the text stands for."""
        return Decimal(str(self))

    def __float__(self) -> float:
        return float(self.value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-kubernetes-int-or-string": True, "pattern": NUMBER_PATTERN, "maxLength": _MAX_LENGTH}
