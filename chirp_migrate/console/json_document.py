"""Read and write typed documents as JSON: journals, plans, and the results of commands.

The module uses Python's ``json``, because the JSON functions of msgspec do not support two kinds of values: NaN, and
texts with lone surrogates. Lone surrogates represent bytes that are not UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_Document = TypeVar("_Document", bound=msgspec.Struct)


def to_json_values(document: object) -> Any:
    """Return a document as dictionaries, lists, texts and numbers. Keys are in the order of the fields."""
    return msgspec.to_builtins(document)


def to_json_bytes(document: object, indent: int | None = 2) -> bytes:
    """Return a document as the bytes of a JSON file. If ``indent`` is None, the file has one line."""
    return (json.dumps(to_json_values(document), indent=indent, ensure_ascii=True) + "\n").encode("ascii")


def read_json(data: bytes) -> dict[str, Any]:
    """Return the JSON object in the bytes of a file. The bytes are checked, because any program may change files.

    Raises:
        ValueError: the bytes are not a JSON object; the message gives the reason.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("it is JSON, but not a JSON object")
    return found


def convert_json(json_object: dict[str, Any], document_type: type[_T]) -> _T:
    """Convert a JSON object from :func:`read_json` to a document of type ``document_type``.

    Raises:
        ValueError: the object does not match the types of the document; the message names the place and the reason.
    """
    try:
        return msgspec.convert(json_object, document_type)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(_translate_type_error(str(error))) from None


class SchemaTooNew(ValueError):
    """Error: a newer chirp-migrate wrote a document. ``tool`` is its name or version."""

    def __init__(self, schema: int, known: int, tool: object) -> None:
        super().__init__(f"its schema is {schema}, and this version of chirp-migrate reads {known}")
        self.tool = tool if isinstance(tool, str) else "unknown version"


def read_document(data: bytes, document_type: type[_Document]) -> _Document:
    """Read a document of a type with the fields ``schema`` and ``tool``. Any program may have changed the bytes.

    Raises:
        SchemaTooNew: a newer version wrote the document.
        ValueError: the bytes are not a document of this type; the message gives the reason.
    """
    found = read_json(data)
    fields = {field.name for field in msgspec.structs.fields(document_type)}
    if missing := [name for name in ("schema", "kind") if name in fields and name not in found]:
        raise ValueError(f"`{missing[0]}` is missing")
    schema = found.get("schema")
    known = next(field.default for field in msgspec.structs.fields(document_type) if field.name == "schema")
    if type(schema) is int and schema > known:
        raise SchemaTooNew(schema, known, found.get("tool"))
    return convert_json(found, document_type)


def _translate_type_error(message: str) -> str:
    """Translate a message of msgspec to the style of this program, such as "`str` where `int` should be at `$.a`"."""
    what, _, place = message.partition(" - at ")
    what = re.sub(r"Object missing required field (`.*?`)", r"\1 is missing", what)
    what = re.sub(r"Expected (.*), got (.*)", r"\2 where \1 should be", what)
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{what} at {place}" if place else what
