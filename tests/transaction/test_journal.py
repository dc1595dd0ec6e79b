"""A journal is read as something that anybody may have changed: it is believed wholly or refused in one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import no_posix
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import snapshot
from transaction_tools import migration, plan_of, rewrites, write_tree

from chirp_migrate.console.json_document import read_document, to_json_bytes
from chirp_migrate.errors import JournalDamaged, WriteRefused
from chirp_migrate.plans.plan import FilePlan, sha256
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.journal import DOCTOR, VERDICT, JournalRun, applied_runs, store_document
from chirp_migrate.transaction.journal_schema import (
    FileVersion,
    JournalFile,
    RunRecord,
    RunState,
)
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback

hashes = st.binary(max_size=3).map(sha256)
versions = st.builds(FileVersion, hashes, st.integers(0, 0o7777))
parts = st.text("abc.-_ äß\udcff", min_size=1, max_size=6).filter(lambda part: part.strip(".") != "")
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)


@st.composite
def journal_files(draw: st.DrawFn) -> JournalFile:
    """Files as a run records them: a rewritten one keeps its mode, a created one has none yet."""
    before = draw(st.none() | versions)
    return JournalFile.of(draw(paths), before, draw(hashes), draw(st.none() | versions))


@pytest.mark.slow
@given(
    st.sampled_from(RunState),
    st.lists(journal_files(), unique_by=lambda file: file.path, max_size=4).map(tuple),
    st.lists(paths, max_size=3).map(tuple),
)
def test_a_record_is_read_as_it_was_written(
    state: RunState, files: tuple[JournalFile, ...], folders: tuple[str, ...]
) -> None:
    record = RunRecord(tool="0.1.0", state=state, created="2026-01-02T03:04:05Z", folders=folders, files=files)
    assert read_document(to_json_bytes(record), RunRecord) == record


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"files": [{"path": "a.py"}]}, r"`mode` is missing at `\$\.files\[0\]`"),
        ({"state": 3}, r"`int` where `str` should be at `\$\.state`"),
        ({"state": "done"}, r"invalid enum value 'done' at `\$\.state`"),
        ({"folders": ["../x"]}, r"the path '\.\./x' leads outside the project"),
    ],
)
def test_what_is_damaged_is_named_by_its_place(change: dict[str, Any], reason: str) -> None:
    record = to_json_bytes(
        RunRecord(tool="0.1.0", state=RunState.APPLIED, created="2026-01-02T03:04:05Z", folders=(), files=())
    )
    with pytest.raises(ValueError, match=reason):
        read_document(json.dumps({**json.loads(record), **change}).encode(), RunRecord)


def test_the_journal_tells_what_was_done(tree: Path) -> None:
    write_tree(tree)
    assert not applied_runs(tree)
    commit_plan(migration(tree))
    run = applied_runs(tree)[-1]
    assert run.name == "0001"
    (latin,) = (file for file in run.files if file.path == "latin.py")
    assert latin.before is not None and latin.mode == 0o640
    assert latin.sha256_after == sha256((tree / "latin.py").read_bytes())
    assert run.original("latin.py") == b"# coding: latin-1\nx = '\xe4'\n"
    assert latin.sha256_before == sha256(run.original("latin.py"))
    (added,) = (file for file in run.files if file.path.startswith("notebooks"))
    assert (added.before, added.mode, added.sha256_before) == (None, None, None)
    assert run.folders == ("notebooks", "notebooks/deep")
    for path in ("untouched.py", added.path):
        with pytest.raises(KeyError):
            run.original(path)


def test_runs_are_numbered_in_their_order(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"0")
    for content in (b"1", b"2"):
        commit_plan(rewrites(tree, {"a.py": content}))
    assert [run.name for run in applied_runs(tree)] == ["0001", "0002"]
    rollback(tree)
    commit_plan(rewrites(tree, {"a.py": b"3"}))
    assert [run.name for run in applied_runs(tree)] == ["0001", "0002"]


def path_of(name: str) -> Callable[[dict[str, Any]], None]:
    """Tampering that gives the first file another path."""

    def tamper(record: dict[str, Any]) -> None:
        record["files"][0]["path"] = name

    return tamper


def set_in_file(**values: object) -> Callable[[dict[str, Any]], None]:
    """Tampering with fields of the first file."""
    return lambda record: record["files"][0].update(values)


TAMPERINGS = {
    "absolute path": path_of("/etc/passwd"),
    "path upwards": path_of("../outside/far.py"),
    "path up and down": path_of("utils/../../outside/far.py"),
    "git's own file": path_of(".git/hooks/pre-commit"),
    "git's own file in capitals": path_of("sub/.GIT/config"),
    "the journal itself": path_of(".chirp-migrate/0001/journal.json"),
    "no path": path_of(""),
    "the root": path_of("."),
    "a NUL": path_of("a\0b"),
    "a path that is a number": lambda record: record["files"][0].update(path=7),
    "hash that is a path": set_in_file(sha256_before="../../outside/far.py"),
    "no hash": set_in_file(sha256_after=None),
    "mode too large": set_in_file(mode=0o100644),
    "mode below zero": set_in_file(mode=-1),
    "mode as text": set_in_file(mode="rw"),
    "rewritten without a mode": set_in_file(mode=None),
    "rewritten from nothing": set_in_file(sha256_before=None),
    "found without a mode": set_in_file(sha256_found="0" * 64),
    "no mode": lambda record: record["files"][0].pop("mode"),
    "a file twice": lambda record: record["files"].append(record["files"][0]),
    "folder upwards": lambda record: record["folders"].append("../outside"),
    "unknown state": lambda record: record.update(state="great"),
    "another schema": lambda record: record.update(schema=0),
    "a schema that is no number": lambda record: record.update(schema="2"),
    "no files": lambda record: record.pop("files"),
    "files that are no list": lambda record: record.update(files=3),
    "a file that is no mapping": lambda record: record.update(files=["utils/engine.py"]),
}


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_journal_touches_nothing(tmp_path: Path, name: str, state: RunState) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "utils").mkdir(parents=True)
    outside.mkdir()
    (outside / "far.py").write_bytes(b"x = 2\n")
    (root / "utils" / "a.py").write_bytes(b"x = 1\n")
    commit_plan(rewrites(root, {"utils/a.py": b"x = 2\n"}))
    journal = root / ".chirp-migrate" / "0001" / "journal.json"
    record = json.loads(journal.read_text())
    record["state"] = state.value
    TAMPERINGS[name](record)
    journal.write_text(json.dumps(record))
    left = snapshot(tmp_path)
    for command in (rollback, lambda root: rollback(root, force=True), recover, applied_runs):
        with pytest.raises(JournalDamaged, match=r"0001.*damaged.*backup") as caught:
            command(root)
        assert "\n" not in str(caught.value)
        assert snapshot(tmp_path) == left


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, None, "pipe"])
def test_what_is_no_journal_is_refused(tree: Path, content: bytes | str | None) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    path = tree / ".chirp-migrate" / "0001" / "journal.json"
    path.unlink()
    if content == "pipe":
        if not hasattr(os, "mkfifo") or os.environ.get(no_posix.VARIABLE):
            pytest.skip("this system has no named pipes")
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    left = snapshot(tree, journal=False)
    for command in (rollback, recover, applied_runs, lambda root: commit_plan(migration(root))):
        with pytest.raises(JournalDamaged, match="damaged") as caught:
            command(tree)
        assert "\n" not in str(caught.value)
        assert snapshot(tree, journal=False) == left


@pytest.mark.parametrize("state", ["applied", "pending", "a state of the future"])
def test_a_journal_of_a_newer_version_is_left_to_that_one(tree: Path, state: str) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    journal = tree / ".chirp-migrate" / "0001" / "journal.json"
    record = {"schema": 7, "tool": "3.1.0", "state": state, "whatever": []}
    journal.write_text(json.dumps(record))
    left = snapshot(tree)
    for command in (rollback, recover, applied_runs, lambda root: commit_plan(migration(root))):
        with pytest.raises(JournalDamaged, match=r"newer chirp-migrate \(3\.1\.0;.*nothing was changed"):
            command(tree)
        assert snapshot(tree) == left


def test_a_run_that_another_process_removes_meanwhile_is_not_listed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_plan(plan_of(tree, FilePlan("a.py", None, b"x = 1\n", "scaffold")))
    commit_plan(plan_of(tree, FilePlan("b.py", None, b"x = 2\n", "scaffold")))
    read = journal.read_run

    def read_late(root: Path, name: str) -> JournalRun:
        if name == "0002":
            shutil.rmtree(root / ".chirp-migrate" / name)
        return read(root, name)

    monkeypatch.setattr(journal, "read_run", read_late)
    assert [run.name for run in applied_runs(tree)] == ["0001"]


def test_a_place_that_cannot_have_a_journal_is_named(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x = 1\n")
    with pytest.raises(JournalDamaged, match=r"a\.py.*cannot be read"):
        applied_runs(tree / "a.py")


def test_a_document_that_is_no_file_is_named_and_never_replaced(tree: Path) -> None:
    commit_plan(plan_of(tree, FilePlan("a.py", None, b"x = 1\n", "scaffold")))
    (run,) = applied_runs(tree)
    store_document(run, DOCTOR, b"{}")
    assert (run.document(DOCTOR), run.document(VERDICT)) == (b"{}", None)
    (run.folder / VERDICT).mkdir()
    left = snapshot(tree)
    with pytest.raises(
        JournalDamaged, match=r"verify\.json cannot be read .*: make it readable, or remove it\."
    ) as raised:
        run.document(VERDICT)
    assert "journal.json" not in str(raised.value), "the run itself can still be undone"
    with pytest.raises(OSError):
        store_document(run, VERDICT, b"{}")
    assert snapshot(tree) == left


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_a_journal_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    write_tree(root)
    (root / ".chirp-migrate").symlink_to(elsewhere, target_is_directory=True)
    left = snapshot(tmp_path)
    for command in (lambda: commit_plan(migration(root)), lambda: rollback(root), lambda: recover(root)):
        with pytest.raises(WriteRefused, match="not a folder"):
            command()
    assert snapshot(tmp_path) == left


@pytest.mark.parametrize("force", [False, True])
def test_a_journal_never_leads_through_a_link(tmp_path: Path, force: bool) -> None:
    """Plain in its words, but a folder on the way is a link to elsewhere."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.py").write_bytes(b"x = 2\n")
    (root / "a.py").write_bytes(b"x = 1\n")
    commit_plan(rewrites(root, {"a.py": b"x = 2\n"}))
    (root / "way").symlink_to(outside, target_is_directory=True)
    journal = root / ".chirp-migrate" / "0001" / "journal.json"
    for state in RunState:
        record = json.loads(journal.read_text())
        record["state"] = state.value
        path_of("way/a.py")(record)
        journal.write_text(json.dumps(record))
        with pytest.raises(Exception) as caught:
            rollback(root, force=force)
        assert type(caught.value).__module__ == "chirp_migrate.errors"
        assert (outside / "a.py").read_bytes() == b"x = 2\n"
        assert [path.name for path in outside.iterdir()] == ["a.py"]


@pytest.mark.parametrize("change", [lambda p: p.write_bytes(b"other"), lambda p: p.unlink(), lambda p: p.chmod(0)])
def test_kept_bytes_that_are_not_what_they_were_stop_the_rollback_before_it_changes_anything(
    tree: Path, change: Callable[[Path], object]
) -> None:
    write_tree(tree)
    commit_plan(migration(tree))
    run = applied_runs(tree)[-1]
    kept = run.folder / sha256(b"import torch\n\nx = 1\n")
    change(kept)
    if kept.exists() and kept.stat().st_mode & 0o777 == 0:
        try:
            kept.read_bytes()
        except PermissionError:
            pass
        else:
            pytest.skip("this user reads everything")
    left = snapshot(tree, journal=False)
    with pytest.raises(JournalDamaged, match="damaged"):
        rollback(tree)
    assert snapshot(tree, journal=False) == left


@given(st.data())
def test_a_journal_cut_short_or_overwritten_is_refused_or_read_whole(data: st.DataObject) -> None:
    file = JournalFile.of("a.py", FileVersion(sha256(b"1"), 0o644), sha256(b"2"))
    when = "2026-01-02T03:04:05Z"
    whole = to_json_bytes(
        RunRecord(tool="1", state=RunState.APPLIED, created=when, folders=("notebooks",), files=(file,))
    )
    start = data.draw(st.integers(0, len(whole)))
    broken = whole[:start] + data.draw(st.binary(max_size=4))
    if broken.rstrip() == whole.rstrip():
        return
    with pytest.raises(ValueError):
        read_document(broken, RunRecord)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2)
    )
)
def test_any_json_in_place_of_a_record_is_refused(content: object) -> None:
    with pytest.raises(ValueError):
        read_document(json.dumps(content).encode(), RunRecord)
    with pytest.raises(ValueError):
        read_document(json.dumps({"schema": 1, "files": content, "folders": [], "state": content}).encode(), RunRecord)
