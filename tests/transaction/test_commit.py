"""A plan is written wholly or not at all, and only where nobody else's work is."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from support import Death, in_child, snapshot
from transaction_tools import ADDED, BACKEND, migration, plan_of, rewrites, write_tree

from chirp_migrate.console.progress import ProgressStep
from chirp_migrate.errors import CommitFailed, WriteRefused
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.transaction import journal
from chirp_migrate.transaction.commit import commit_plan, unwritable_files
from chirp_migrate.transaction.journal import JournalRun
from chirp_migrate.transaction.journal_schema import RunState
from chirp_migrate.transaction.recovery import recover
from chirp_migrate.transaction.rollback import rollback


def steps_of(root: Path) -> list[str]:
    """The steps of a commit of the usual plan in the usual tree."""
    steps: list[str] = []
    write_tree(root)
    commit_plan(migration(root), on_step=lambda step: steps.append(step.text))
    return steps


def test_every_file_is_as_planned_with_its_mode_and_nothing_else_changes(tree: Path) -> None:
    write_tree(tree)
    plan = migration(tree)
    result = commit_plan(plan)
    assert (result.applied, result.run) == (plan.files, "0001")
    found = snapshot(tree, journal=False)
    modes = {name: mode for name, _, mode in BACKEND}
    for file in plan.files:
        kind, mode, content = found[file.path]
        assert (kind, content) == ("file", file.after)
        assert mode == modes.get(file.path, mode)
    assert found["untouched.py"] == ("file", 0o600, b"z = 0\n")
    folders = {"utils", "notebooks", "notebooks/deep"}
    assert set(found) == {name for name, _, _ in BACKEND} | set(ADDED) | folders


def test_at_every_instant_what_migrated_code_needs_is_there(tree: Path) -> None:
    """Also on the way back, and whatever the order of the plan."""
    write_tree(tree)
    plan = migration(tree)
    rewritten = {file.path: file.after for file in plan.files if file.before is not None}
    seen = set()

    def look(step: ProgressStep) -> None:
        migrated = any((tree / path).read_bytes() == after for path, after in rewritten.items())
        complete = all((tree / path).exists() for path in ADDED)
        seen.add((migrated, complete))
        assert complete or not migrated, step

    commit_plan(plan, on_step=look)
    rollback(tree, on_step=look)
    assert in_child(lambda: commit_plan(plan, on_step=Death("replaced requirements.txt"))) < 0
    assert recover(tree, on_step=look) is not None
    assert seen == {(False, False), (False, True), (True, True)}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks the system which file a descriptor is")
def test_all_of_it_is_on_disk_before_the_next_step_needs_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal before the first file changes, each new file before its rename, and all names at the end."""
    write_tree(tree)
    events: list[tuple[str, str]] = []
    fsync, replace, mkdir = os.fsync, Path.replace, Path.mkdir

    def name(path: str | Path) -> str:
        return os.path.relpath(path, tree)

    def sync(descriptor: int) -> None:
        events.append(("sync", name(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def move(self: Path, target: Path) -> Path:
        events.append(("move", f"{name(self)} {name(target)}"))
        return replace(self, target)

    def make(self: Path, *arguments: object, **options: object) -> None:
        events.append(("make", name(self)))
        mkdir(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", move)
    monkeypatch.setattr(Path, "mkdir", make)
    plan = migration(tree)
    commit_plan(plan)
    monkeypatch.undo()

    moves = [(at, what.split()) for at, (kind, what) in enumerate(events) if kind == "move"]
    files = [(at, *names) for at, names in moves if not names[1].startswith(".chirp-migrate/")]
    assert {target for _, _, target in files} == {file.path for file in plan.files}
    first, last = files[0][0], files[-1][0]
    for needed in (".chirp-migrate/new-0001/journal.json", ".chirp-migrate/new-0001", ".chirp-migrate", "."):
        assert ("sync", needed) in events[:first], needed
    for at, source, _ in files:
        assert ("sync", source) in events[:at], source
    (sealed,) = [at for at, (_, target) in moves if target == ".chirp-migrate/0001/journal.json"]
    for folder in {str(parent) for file in plan.files for parent in PurePosixPath(file.path).parents}:
        assert ("sync", folder) in events[last:sealed], folder


def test_a_new_file_gets_the_mode_that_the_umask_gives(tree: Path) -> None:
    previous = os.umask(0o027)
    try:
        commit_plan(plan_of(tree, FilePlan("new/a.py", None, b"x", "scaffold")))
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tree / "new" / "a.py").stat().st_mode) == 0o640


def test_the_modification_time_moves_on(tree: Path) -> None:
    """Python takes compiled bytecode for current when the size and the time of the source are what they were."""
    (tree / "a.py").write_bytes(b"x = 1\n")
    os.utime(tree / "a.py", (1, 1))
    commit_plan(rewrites(tree, {"a.py": b"x = 2\n"}))
    assert (tree / "a.py").stat().st_mtime > 1


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes")
def test_extended_attributes_stay(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x = 1\n")
    try:
        os.setxattr(tree / "a.py", "user.note", b"kept")
    except OSError as error:
        pytest.skip(f"not on this file system: {error}")
    commit_plan(rewrites(tree, {"a.py": b"x = 2\n"}))
    assert os.getxattr(tree / "a.py", "user.note") == b"kept"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x = 1\n")
    os.chown(tree / "a.py", 1234, 2345)
    commit_plan(rewrites(tree, {"a.py": b"x = 2\n"}))
    found = (tree / "a.py").stat()
    assert (found.st_uid, found.st_gid) == (1234, 2345)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_whoever_cannot_keep_the_owner_keeps_the_group_they_are_in(public: Path) -> None:
    root = public
    (root / "a.py").write_bytes(b"x = 1\n")
    os.chown(root, 1234, 2345)
    os.chown(root / "a.py", 4321, 2345)
    (root / "a.py").chmod(0o664)
    plan = rewrites(root, {"a.py": b"x = 2\n"})

    def as_somebody_else() -> None:
        os.setgroups([2345])
        os.setgid(5555)
        os.setuid(1234)
        commit_plan(plan)

    assert in_child(as_somebody_else) == 0
    found = (root / "a.py").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o664)


@pytest.mark.skipif(not hasattr(os, "link"), reason="no hard links")
def test_other_names_of_a_file_keep_the_old_bytes_and_that_is_said(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x = 1\n")
    (tree / "a.py").chmod(0o750)
    (tree / "b.py").write_bytes(b"y = 1\n")
    os.link(tree / "a.py", tree / "other.txt")
    result = commit_plan(rewrites(tree, {"a.py": b"x = 2\n", "b.py": b"y = 2\n"}))
    assert result.linked == ("a.py",)
    assert (tree / "other.txt").read_bytes() == b"x = 1\n"
    assert stat.S_IMODE((tree / "a.py").stat().st_mode) == 0o750
    rollback(tree)
    assert (tree / "a.py").read_bytes() == (tree / "other.txt").read_bytes() == b"x = 1\n"


def test_a_commit_says_what_it_brought_to_an_end_first(tree: Path) -> None:
    write_tree(tree)
    plan = migration(tree)
    assert in_child(lambda: commit_plan(plan, on_step=Death("replaced latin.py"))) < 0
    result = commit_plan(plan)
    assert result.found is not None and "undone" in result.found
    assert commit_plan(plan_of(tree)).found is None


def test_git_does_not_see_the_journal(tree: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    commit_plan(plan_of(tree, FilePlan("a.py", None, b"x", "scaffold")))
    status = ["git", "status", "--porcelain", "-uall"]
    found = subprocess.run(status, cwd=tree, check=True, capture_output=True, text=True)
    assert found.stdout == "?? a.py\n"


def test_nothing_to_write_leaves_nothing_behind(tree: Path) -> None:
    (tree / "a.py").write_bytes(b"x")
    result = commit_plan(plan_of(tree, FilePlan("a.py", b"x", b"x", "rewrite")))
    assert (result.applied, result.run) == ((), "")
    assert list(snapshot(tree)) == ["a.py"]


def test_files_that_changed_since_they_were_planned_are_all_named(tree: Path) -> None:
    write_tree(tree)
    plan = migration(tree)
    (tree / "latin.py").write_bytes(b"edited\n")
    (tree / "utils" / "crlf.py").unlink()
    (tree / "utils" / "dataloader_factory.py").write_bytes(b"somebody's\n")
    (tree / "notebooks").write_bytes(b"a file where a folder must be")
    left = snapshot(tree)
    with pytest.raises(WriteRefused) as caught:
        commit_plan(plan)
    for name in ("latin.py", "utils/crlf.py", "utils/dataloader_factory.py", "notebooks/deep/Bench.ipynb"):
        assert name in str(caught.value)
    assert caught.value.exit_code == 3
    assert snapshot(tree) == left


def test_a_file_that_changes_in_the_last_moment_stops_the_commit_and_stays(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)
    victim = tree / "latin.py"

    def edit(step: ProgressStep) -> None:
        if step.text == "replaced utils/engine.py":
            victim.write_bytes(b"edited\n")

    with pytest.raises(WriteRefused, match=r"latin\.py changed"):
        commit_plan(migration(tree), on_step=edit)
    assert snapshot(tree) == {**before, "latin.py": ("file", 0o640, b"edited\n")}


def test_nothing_is_written_if_a_file_or_folder_is_read_only(tree: Path) -> None:
    write_tree(tree)
    (tree / "latin.py").chmod(0o444)
    (tree / "utils").chmod(0o555)
    plan = migration(tree)
    left = snapshot(tree)
    unwritable = {"latin.py", *(file.path for file in plan.files if file.path.startswith("utils/"))}
    assert {one.path for one in unwritable_files(plan)} == unwritable
    try:
        with pytest.raises(WriteRefused, match="read-only") as caught:
            commit_plan(plan)
        assert snapshot(tree) == left
    finally:
        (tree / "utils").chmod(0o755)
    assert all(f"{path}: " in str(caught.value) for path in unwritable)


def test_a_link_is_written_through(tree: Path) -> None:
    (tree / "real").mkdir()
    (tree / "real" / "requirements.txt").write_bytes(b"torch\n")
    (tree / "requirements.txt").symlink_to("real/requirements.txt")
    commit_plan(rewrites(tree, {"requirements.txt": b"torch\nmore\n"}))
    assert (tree / "requirements.txt").is_symlink()
    assert (tree / "real" / "requirements.txt").read_bytes() == b"torch\nmore\n"


@pytest.mark.parametrize(
    "name", ["link.py", "folder/far.py", "../outside/far.py", "utils/../../outside/far.py", "{abs}"]
)
def test_nothing_outside_the_root_is_written(tmp_path: Path, name: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    far = outside / "far.py"
    far.write_bytes(b"x")
    (root / "link.py").symlink_to(far)
    (root / "folder").symlink_to(outside, target_is_directory=True)
    left = snapshot(tmp_path)
    with pytest.raises(WriteRefused):
        commit_plan(plan_of(root, FilePlan(name.format(abs=far), b"x", b"y", "rewrite")))
    with pytest.raises(WriteRefused):
        commit_plan(plan_of(root, FilePlan(name.format(abs=far).replace("far", "new"), None, b"y", "scaffold")))
    assert snapshot(tmp_path) == left


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".chirp-migrate/0001/journal.json", "a/./b.py", "", "a\0b"])
def test_a_plan_cannot_name_what_is_not_the_backends(tree: Path, name: str) -> None:
    with pytest.raises(WriteRefused):
        commit_plan(plan_of(tree, FilePlan(name, None, b"x", "scaffold")))
    assert snapshot(tree) == {}


def test_two_names_of_one_file_are_refused(tree: Path) -> None:
    (tree / "a.txt").write_bytes(b"x")
    (tree / "b.txt").symlink_to("a.txt")
    left = snapshot(tree)
    with pytest.raises(WriteRefused, match="twice"):
        commit_plan(rewrites(tree, {"a.txt": b"1", "b.txt": b"2"}))
    assert snapshot(tree) == left


def test_an_error_after_any_step_undoes_all_of_them(tree: Path, tmp_path: Path) -> None:
    steps = steps_of(tmp_path)
    assert len(steps) == len(set(steps)) > 20
    write_tree(tree)
    before = snapshot(tree)
    for doomed in steps:

        def fail(step: ProgressStep, doomed: str = doomed) -> None:
            if step.text == doomed:
                raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

        with pytest.raises(CommitFailed, match=r"No space left.*(nothing was changed|undone)") as caught:
            commit_plan(migration(tree), on_step=fail)
        assert caught.value.exit_code == 4
        assert snapshot(tree) == before, doomed


def test_an_interrupt_from_the_keyboard_undoes_all_and_goes_on(tree: Path) -> None:
    write_tree(tree)
    before = snapshot(tree)

    def interrupt(step: ProgressStep) -> None:
        if step.text == "replaced latin.py":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit_plan(migration(tree), on_step=interrupt)
    assert snapshot(tree) == before


def test_an_interrupt_after_the_run_is_recorded_undoes_all_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tree)
    before = snapshot(tree)
    change = journal.record_run_state

    def interrupt(run: JournalRun, state: RunState) -> JournalRun:
        changed = change(run, state)
        if state is RunState.APPLIED:
            raise KeyboardInterrupt
        return changed

    monkeypatch.setattr(journal, "record_run_state", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commit_plan(migration(tree))
    assert snapshot(tree) == before


def test_undoing_that_fails_too_is_said_and_can_be_taken_up_later(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tree)
    before = snapshot(tree)
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if "crlf.py" in str(target):
            raise PermissionError(errno.EACCES, "Permission denied", str(target))
        return replace(self, target)

    def then_break(step: ProgressStep) -> None:
        if step.text == "replaced utils/crlf.py":
            monkeypatch.setattr(Path, "replace", refuse)
            raise OSError(errno.EIO, "Input/output error", "somewhere")

    with pytest.raises(CommitFailed, match="the changes cannot be undone"):
        commit_plan(migration(tree), on_step=then_break)
    with pytest.raises(CommitFailed, match="Nothing is lost"):
        recover(tree)
    monkeypatch.undo()
    assert recover(tree) is not None
    assert snapshot(tree) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits are set in a process of their own")
@pytest.mark.parametrize("limit", [10, 3000])
def test_a_file_that_may_not_grow_so_large_undoes_the_commit(tree: Path, limit: int) -> None:
    """The system's own error, where the journal is written (10 bytes) and where a file's bytes are."""
    import resource

    (tree / "a.py").write_bytes(b"x = 1\n")
    (tree / "large.py").write_bytes(b"y = 1\n")
    before = snapshot(tree)
    plan = rewrites(tree, {"a.py": b"x = 2\n", "large.py": b"y" * 4000})

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        with pytest.raises(CommitFailed, match="File too large"):
            commit_plan(plan)

    assert in_child(limited) == 0
    assert snapshot(tree) == before


def test_a_full_disk_undoes_the_commit(tmp_path: Path) -> None:
    """Room for the journal's bytes, but not for the files beside their places."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "none", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        (disk / "a.py").write_bytes(b"a" * 50_000)
        (disk / "b.py").write_bytes(b"b" * 50_000)
        before = snapshot(disk)
        plan = rewrites(disk, {"a.py": b"c" * 110_000, "b.py": b"d" * 110_000})
        with pytest.raises(CommitFailed, match=r"No space left.*undone"):
            commit_plan(plan)
        assert snapshot(disk) == before
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_root_that_is_not_there_is_one_sentence(tree: Path) -> None:
    with pytest.raises(CommitFailed, match="nothing was changed"):
        commit_plan(plan_of(tree / "missing", FilePlan("a.py", None, b"x", "scaffold")))


@pytest.mark.parametrize(
    ("name", "happened"),
    [("new-0001", "before it changed any file"), ("old-0001", "after all its files had been restored")],
)
def test_a_half_written_or_half_removed_journal_is_cleared_away(tree: Path, name: str, happened: str) -> None:
    staging = tree / ".chirp-migrate" / name
    staging.mkdir(parents=True)
    (staging / "0123").write_bytes(b"half")
    (tree / ".chirp-migrate" / ".gitignore").write_bytes(b"")
    said = recover(tree)
    assert said is not None and happened in said
    assert snapshot(tree) == {}


def test_what_somebody_else_keeps_in_the_journal_folder_stays(tree: Path) -> None:
    mine = tree / ".chirp-migrate" / "notes.txt"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    assert recover(tree) is None
    assert mine.read_bytes() == b"mine"


def test_names_that_are_not_text_are_journalled(tree: Path) -> None:
    name = os.fsdecode(b"n\xff\nx.py")
    try:
        (tree / name).write_bytes(b"x")
    except OSError as error:
        pytest.skip(f"not on this file system: {error}")
    commit_plan(rewrites(tree, {name: b"y"}))
    assert (tree / name).read_bytes() == b"y"
