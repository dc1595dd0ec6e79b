"""Bytes come back as they were, whatever the encoding, the newlines and the end of the file."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
from pathlib import Path

import no_posix
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chirp_migrate.plans.plan import Edit
from chirp_migrate.source.files import fsync_folder
from chirp_migrate.source.text import SourceFile, UnreadableSource, apply_edits

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)


@given(texts, st.booleans())
def test_utf8_comes_back_with_and_without_a_byte_order_mark(text: str, bom: bool) -> None:
    # A cookie-like comment among random text would name another encoding: the first two lines are fixed.
    data = (codecs.BOM_UTF8 if bom else b"") + ("#\n#\n" + text).encode()
    source = SourceFile.from_bytes(data)
    assert source.text == "#\n#\n" + text
    assert source.encode(source.text) == data


@given(st.text(st.characters(codec="latin-1", exclude_characters="\0"), max_size=60))
def test_an_encoding_cookie_is_followed(text: str) -> None:
    whole = "# -*- coding: latin-1 -*-\n#\n" + text
    source = SourceFile.from_bytes(whole.encode("latin-1"))
    assert source.text == whole
    assert source.encode(whole) == whole.encode("latin-1")


@pytest.mark.parametrize("data", [b"", b"x", b"x\r\ny\rz\n", b"\f\nx = 1\r\n", b"x = 1 \t"])
def test_newlines_and_the_end_of_the_file_stay(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    source = SourceFile.from_bytes(path.read_bytes())
    assert source.encode(source.text) == data == source.data
    assert source.text.encode() == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x = '\xff'\n", "encoding"),
        (b"# coding: no-such-codec\n", "encoding"),
        (b"# coding: rot13\n", "not a text encoding"),
        (b"x\0y", "NUL"),
        (codecs.BOM_UTF8 + b"# coding: latin-1\n", "encoding"),
        (b"# coding: utf-7\nx = '+AGE-'\n", "does not encode the decoded text to the same bytes"),
    ],
)
def test_what_cannot_round_trip_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableSource, match=said):
        SourceFile.from_bytes(data)


def test_a_character_that_the_encoding_lacks_is_refused() -> None:
    source = SourceFile.from_bytes(b"# coding: latin-1\n")
    with pytest.raises(UnreadableSource, match="iso-8859-1"):
        source.encode("\u20ac")


@given(st.data())
def test_edits_replace_their_spans_and_nothing_else(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.tuples(texts, texts, texts), max_size=5))
    tail = data.draw(texts)
    before, after, edits = "", "", []
    for kept, old, new in pieces:
        start = len(before) + len(kept)
        before += kept + old
        after += kept + new
        edits.append(Edit(start, start + len(old), new))
    distinct = len({(edit.start, edit.end) for edit in edits}) == len(edits)
    shuffled = data.draw(st.permutations(edits)) if distinct else edits
    assert apply_edits(before + tail, shuffled) == after + tail


def test_insertions_at_one_place_keep_their_order_and_go_before_a_replacement_there() -> None:
    assert apply_edits("abc", [Edit(1, 2, "X"), Edit(1, 1, "1"), Edit(1, 1, "2")]) == "a12Xc"


@pytest.mark.parametrize("edits", [[Edit(0, 2, ""), Edit(1, 3, "")], [Edit(0, 3, ""), Edit(1, 1, "x")]])
def test_overlapping_edits_are_an_error(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="overlaps"):
        apply_edits("abc", edits)


@pytest.mark.parametrize("edit", [Edit(-1, 0, ""), Edit(2, 4, ""), Edit(2, 1, "")])
def test_an_edit_outside_the_text_is_an_error(edit: Edit) -> None:
    with pytest.raises(ValueError, match="outside"):
        apply_edits("abc", [edit])


@pytest.mark.skipif(
    not hasattr(os, "O_DIRECTORY") or no_posix.VARIABLE in os.environ, reason="Windows cannot open a folder"
)
@pytest.mark.parametrize(("code", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_only_file_systems_that_cannot_flush_a_folder_may_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fails: bool
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError) if fails else contextlib.nullcontext():
        fsync_folder(tmp_path)
