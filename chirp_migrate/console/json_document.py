"""Read and write the JSON documents of this program: journals, plans, and the results of commands.

Each type of document is a msgspec struct.

The module encodes and decodes with Python's ``json``, because the JSON functions of msgspec reject NaN and strings with
lone surrogates. A lone surrogate stands for a byte that is not valid UTF-8.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_Document = TypeVar("_Document", bound=msgspec.Struct)


def to_json_values(document: object) -> Any:
    """Convert a document to dictionaries, lists, strings and numbers. The keys keep the order of the fields."""
    return msgspec.to_builtins(document)


def to_json_bytes(document: object, indent: int | None = 2) -> bytes:
    """Return a document as the bytes of a JSON file. If ``indent`` is None, the JSON is on a single line."""
    return (json.dumps(to_json_values(document), indent=indent, ensure_ascii=True) + "\n").encode("ascii")


def read_json(data: bytes) -> dict[str, Any]:
    """Parse the bytes of a file as a JSON object. The bytes may be invalid, because any program can change the file.

    Raises:
        ValueError: the bytes are not a JSON object. The message gives the reason.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the content is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the content is JSON, but not a JSON object")
    return found


def convert_json(json_object: dict[str, Any], document_type: type[_T]) -> _T:
    """Convert a JSON object from :func:`read_json` to a document of type ``document_type``.

    Raises:
        ValueError: a value has the wrong type, or a field is missing. The message gives the place in the JSON and the
            reason.
    """
    try:
        return msgspec.convert(json_object, document_type)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(_translate_type_error(str(error))) from None


class SchemaTooNew(ValueError):
    """Raised for a document that a newer version of chirp-migrate wrote.

    Attributes:
        tool: name and version of the program that wrote the document, such as ``chirp-migrate 1.2.0``.
    """

    def __init__(self, schema: int, known: int, tool: object) -> None:
        super().__init__(f"the schema of the file is {schema}, but this version only reads schemas up to {known}")
        self.tool = tool if isinstance(tool, str) else "unknown version"


def read_document(data: bytes, document_type: type[_Document]) -> _Document:
    """Read a document whose type has the fields ``schema`` (the version of its format) and ``tool``.

    Raises:
        SchemaTooNew: a newer version of chirp-migrate wrote the document.
        ValueError: the bytes are not a document of this type. The message gives the reason.
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
    """Shorten an error message of msgspec, for example to "`str` where `int` should be at `$.a`"."""
    what, _, place = message.partition(" - at ")
    what = re.sub(r"Object missing required field (`.*?`)", r"\1 is missing", what)
    what = re.sub(r"Expected (.*), got (.*)", r"\2 where \1 should be", what)
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{what} at {place}" if place else what
