"""Reading and writing of typed documents as JSON: journals, plans, and the results of verify and tune.

The module does not use msgspec's own JSON: text may contain lone surrogates, which represent bytes that are not UTF-8,
and values may be NaN.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

__all__ = ["as_bytes", "plain", "read_as", "read_json"]

_T = TypeVar("_T")


def plain(document: object) -> Any:
    """Return the document as dictionaries, lists, text and numbers, in the order of its fields."""
    return msgspec.to_builtins(document)


def as_bytes(document: object, indent: int | None = 2) -> bytes:
    """Return the document as the bytes of a file; in one line if ``indent`` is None."""
    return (json.dumps(plain(document), indent=indent, ensure_ascii=True) + "\n").encode("ascii")


def read_json(data: bytes) -> dict[str, Any]:
    """Return the object in a file that any program may have changed.

    Raises:
        ValueError: it is no JSON object; the message has the reason.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is another kind of document")
    return found


def read_as(found: dict[str, Any], kind: type[_T]) -> _T:
    """Return the result of :func:`read_json`, checked against the types of a document.

    Raises:
        ValueError: it does not match the types; the message names the place and the reason.
    """
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(_translate_type_error(str(error))) from None


def _translate_type_error(message: str) -> str:
    """Return the first type error in the form of other messages: `str` where `int` should be at `$.a`."""
    what, _, place = message.partition(" - at ")
    what = re.sub(r"Object missing required field (`.*?`)", r"\1 is missing", what)
    what = re.sub(r"Expected (.*), got (.*)", r"\2 where \1 should be", what)
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{what} at {place}" if place else what
