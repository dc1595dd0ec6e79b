"""Convert a Python file to text and back, so that unedited text keeps its bytes.

Newlines are not translated. A byte order mark and a missing final newline are kept. The module determines the encoding
of a file in the same way as Python (PEP 263).
"""

from __future__ import annotations

import codecs
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from chirp_migrate.plans.plan import Edit

NEWLINE = re.compile(r"\r\n|\r|\n")
#: One line of source with its newline, as Python counts lines. ``str.splitlines`` also splits at other characters, so
#: the module cannot use this method.
SOURCE_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class UnreadableSource(Exception):
    """Raised for a file that cannot be read as text, or whose text cannot be written back.

    The message is the reason, without the path.
    """


@dataclass(frozen=True)
class SourceFile:
    """A decoded Python file.

    Attributes:
        text: the decoded text, without the byte order mark, with untranslated newlines.
        encoding: name of the codec, such as ``utf-8`` or ``iso-8859-1``. A byte order mark does not change the name.
        bom: whether the file begins with the UTF-8 byte order mark.
    """

    text: str
    encoding: str
    bom: bool

    @classmethod
    def from_bytes(cls, data: bytes) -> SourceFile:
        """Decode ``data`` as Python would.

        Raises:
            UnreadableSource: the encoding is unknown, the bytes are not valid in the encoding, a byte is NUL, or the
                codec encodes the decoded text to other bytes.
        """
        if b"\0" in data:
            raise UnreadableSource("the file contains NUL bytes, so it is not Python source")
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except (SyntaxError, LookupError) as error:  # since Python 3.14, codecs that are not for text raise LookupError
            reason = error.msg if isinstance(error, SyntaxError) else error
            raise UnreadableSource(f"the encoding cannot be determined: {reason}") from None
        bom = data.startswith(codecs.BOM_UTF8)
        if encoding == "utf-8-sig":
            encoding = "utf-8"
        text = decode_text(data[len(codecs.BOM_UTF8) if bom else 0 :], encoding)
        source = cls(text, encoding, bom)
        if source.data != data:
            raise UnreadableSource(
                f"a rewrite would also change unrelated bytes: {encoding} does not encode the decoded text "
                "to the same bytes"
            )
        return source

    @property
    def data(self) -> bytes:
        """Return the bytes of the file as they were read."""
        return self.encode(self.text)

    def encode(self, text: str) -> bytes:
        """Return the bytes of ``text`` in this file's encoding, with its byte order mark.

        Raises:
            UnreadableSource: a character does not exist in the encoding.
        """
        try:
            encoded = text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise UnreadableSource(f"{text[error.start]!r} cannot be written in {self.encoding}") from None
        return (codecs.BOM_UTF8 if self.bom else b"") + encoded


def decode_text(data: bytes, encoding: str = "utf-8") -> str:
    """Decode bytes with an encoding.

    Raises:
        UnreadableSource: the bytes are not valid in the encoding, or the codec is no text codec.
    """
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableSource(f"byte {error.start} is not valid {encoding}") from None
    except (LookupError, ValueError) as error:  # a codec that is not a text encoding, such as "rot13" or "hex"
        raise UnreadableSource(f"the encoding {encoding} of the file is not a text encoding: {error}") from None


def edit_sort_key(edit: Edit) -> tuple[int, int, int]:
    """Return the sort key of an edit that is applied together with other edits.

    At the same offset, insertions come before a replacement. Among insertions of whole lines, lines with deeper
    indentation come first, because such lines continue the block above. Other insertions keep their order.
    """
    is_lines = edit.start == edit.end and edit.replacement.endswith(("\n", "\r"))
    first = edit.replacement.lstrip("\r\n") if is_lines else ""
    return edit.start, edit.end, len(first.lstrip(" \t")) - len(first)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return ``text`` with ``edits`` applied. The text outside the spans of the edits does not change.

    ``edits`` may have any order: :func:`edit_sort_key` sorts them.

    Raises:
        ValueError: two edits overlap, or an edit lies outside the text.
    """
    pieces: list[str] = []
    position = 0
    for edit in sorted(edits, key=edit_sort_key):
        if not 0 <= edit.start <= edit.end <= len(text):
            raise ValueError(f"an edit of {edit.start}:{edit.end} lies outside a text of {len(text)} characters")
        if edit.start < position:
            raise ValueError(f"an edit of {edit.start}:{edit.end} overlaps another edit, which ends at {position}")
        pieces += [text[position : edit.start], edit.replacement]
        position = edit.end
    return "".join([*pieces, text[position:]])


def apply_edits_in_span(text: str, span: tuple[int, int], edits: Iterable[Edit]) -> str:
    """Return the part of ``text`` from ``span[0]`` to ``span[1]``, after applying ``edits``.

    The offsets of the edits refer to the whole ``text``. All edits must lie inside the span.
    """
    start, end = span
    return apply_edits(text[start:end], (Edit(e.start - start, e.end - start, e.replacement) for e in edits))
