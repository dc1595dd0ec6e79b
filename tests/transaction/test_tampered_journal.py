"""A journal is a file that anybody may have changed: it never leads outside its tree, and damage is one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trees import listing, make_tree

from chirp_migrate.commit import commit, recover
from chirp_migrate.errors import JournalDamaged
from chirp_migrate.journal import journal_folder
from chirp_migrate.plan import sha256
from chirp_migrate.rollback import rollback


def set_path(path: object) -> Callable[[dict[str, Any]], None]:
    """A change of the first file's path."""

    def change(journal: dict[str, Any]) -> None:
        journal["files"][0]["path"] = path

    return change


def set_field(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    """A change of one field of the first file."""

    def change(journal: dict[str, Any]) -> None:
        journal["files"][0][name] = value

    return change


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "parent": set_path("../outside.py"),
    "hidden parent": set_path("utils/../../outside.py"),
    "absolute": set_path("/etc/passwd"),
    "empty": set_path(""),
    "number": set_path(7),
    "nul": set_path("a\0b"),
    "journal": set_path(".chirp-migrate/0001/journal.json"),
    "git": set_path("sub/.git/hooks/pre-commit"),
    "hash is a path": set_field("sha256_before", "../../outside.py"),
    "unknown action": set_field("action", "delete"),
    "mode": set_field("mode", -1),
    "mode is text": set_field("mode", "644"),
    "folder outside": lambda journal: journal.update(folders=["../outside"]),
    "twice": lambda journal: journal["files"].append(journal["files"][0]),
    "state": lambda journal: journal.update(state="unheard of"),
    "schema": lambda journal: journal.update(schema=99),
    "no files": lambda journal: journal.pop("files"),
    "files is a number": lambda journal: journal.update(files=3),
}


def refused_and_unchanged(root: Path) -> None:
    """Every command says what is wrong with the journal in one line, and changes nothing."""
    before = listing(root.parent)
    for command in (lambda: rollback(root), lambda: rollback(root, force=True), lambda: recover(root)):
        with pytest.raises(JournalDamaged) as caught:
            command()
        assert "\n" not in str(caught.value) and "journal" in str(caught.value)
        assert listing(root.parent) == before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changed_journal_is_refused(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.py").write_bytes(b"not yours\n")
    commit(make_tree(root))
    path = journal_folder(root) / "0001" / "journal.json"
    journal = json.loads(path.read_text())
    DAMAGE[damage](journal)
    path.write_text(json.dumps(journal))
    refused_and_unchanged(root)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, None])
def test_what_is_no_journal_is_refused(tmp_path: Path, content: bytes | None) -> None:
    root = tmp_path / "root"
    root.mkdir()
    commit(make_tree(root))
    path = journal_folder(root) / "0001" / "journal.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    refused_and_unchanged(root)


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_kept_bytes_that_are_damaged_are_never_restored(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    plan = make_tree(root)
    commit(plan)
    assert plan.files[-4].before is not None
    blob = journal_folder(root) / "0001" / sha256(plan.files[-4].before)
    if how == "changed":
        blob.write_bytes(b"something else")
    else:
        blob.unlink()
    before = {name: one for name, one in listing(root).items() if not name.startswith(".chirp-migrate")}
    with pytest.raises(JournalDamaged):
        rollback(root)
    assert {name: one for name, one in listing(root).items() if not name.startswith(".chirp-migrate")} == before


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_a_journal_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    plan = make_tree(root)
    journal_folder(root).symlink_to(elsewhere, target_is_directory=True)
    before = listing(tmp_path)
    for command in (lambda: commit(plan), lambda: rollback(root), lambda: recover(root)):
        with pytest.raises(Exception, match="not a folder"):
            command()
    assert listing(tmp_path) == before
