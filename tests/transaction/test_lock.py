"""Two runs never work in one tree at a time, and a dead one is in nobody's way."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import in_child, snapshot
from transaction_tools import plan_of

from chirp_migrate.errors import CommitFailed, WriteRefused
from chirp_migrate.plans.plan import FilePlan
from chirp_migrate.transaction.commit import commit_plan
from chirp_migrate.transaction.lock import hold_lock

HOLDER = """
import sys, time
from pathlib import Path
from chirp_migrate.transaction.lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_run_is_told_who_is_at_work_until_that_one_dies(tree: Path) -> None:
    folder = tree / ".chirp-migrate"
    plan = plan_of(tree, FilePlan("a.py", None, b"x", "scaffold"))
    with subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WriteRefused, match=rf"process {holder.pid} ") as caught:
            commit_plan(plan)
        assert caught.value.exit_code == 3
        assert not (tree / "a.py").exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert (folder / "lock").exists()
    assert commit_plan(plan).run == "0001"
    assert not (folder / "lock").exists()


def test_released_it_leaves_nothing(tree: Path) -> None:
    with hold_lock(tree / ".chirp-migrate"):
        assert (tree / ".chirp-migrate" / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"
    assert snapshot(tree) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits are set in a process of their own")
def test_a_lock_that_finds_no_room_leaves_nothing(tree: Path) -> None:
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(OSError), hold_lock(tree / ".chirp-migrate"):
            raise AssertionError("it has the lock")

    assert in_child(limited) == 0
    assert snapshot(tree) == {}


def test_it_is_released_by_an_error(tree: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(tree / ".chirp-migrate"):
        raise ZeroDivisionError
    with hold_lock(tree / ".chirp-migrate"):
        pass


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path, kind: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    if kind == "file":
        (root / ".chirp-migrate").write_bytes(b"")
    else:
        (root / ".chirp-migrate").symlink_to(outside, target_is_directory=True)
    with pytest.raises(WriteRefused, match="move it to another place"):
        commit_plan(plan_of(root, FilePlan("a.py", None, b"x", "scaffold")))
    assert list(outside.iterdir()) == []
    assert not (root / "a.py").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="another call there")
@pytest.mark.parametrize(
    ("said", "free"),
    [
        ("{dead} {here}", True),
        ("{alive} {here}", False),
        ("{dead} elsewhere.example", False),
        ("", True),
        ("x y", True),
    ],
)
def test_where_files_cannot_be_locked_the_named_process_decides(
    tree: Path, monkeypatch: pytest.MonkeyPatch, said: str, free: bool
) -> None:
    import fcntl

    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = tree / ".chirp-migrate"
    folder.mkdir()
    numbers = {"alive": os.getpid(), "dead": _dead_process(), "here": socket.gethostname()}
    (folder / "lock").write_text(said.format(**numbers))
    if free:
        with hold_lock(folder):
            assert (folder / "lock").read_text().startswith(f"{os.getpid()} ")
    else:
        with pytest.raises(WriteRefused), hold_lock(folder):
            pass


@pytest.mark.skipif(sys.platform == "win32", reason="another call there")
@pytest.mark.parametrize("removed", ["folder", "lock"])
@pytest.mark.parametrize("times", [1, 1000])
def test_what_the_former_holder_removes_meanwhile_is_made_again(
    tree: Path, monkeypatch: pytest.MonkeyPatch, removed: str, times: int
) -> None:
    import fcntl

    folder, left = tree / ".chirp-migrate", times
    opened, locked = os.open, fcntl.flock

    def open_late(path: Path, *flags: int) -> int:
        nonlocal left
        if removed == "folder" and left:
            left -= 1
            folder.rmdir()
        return opened(path, *flags)

    def lock_late(descriptor: int, operation: int) -> None:
        nonlocal left
        if removed == "lock" and left:
            left -= 1
            (folder / "lock").unlink()
        locked(descriptor, operation)

    monkeypatch.setattr(os, "open", open_late)
    monkeypatch.setattr(fcntl, "flock", lock_late)
    if times == 1:
        with hold_lock(folder):
            assert (folder / "lock").exists()
    else:
        with pytest.raises(WriteRefused, match="is running"), hold_lock(folder):
            raise AssertionError("it has the lock")


@pytest.mark.parametrize("code", [32, None], ids=["in use on Windows", "another error"])
def test_a_lock_file_that_cannot_be_removed_is_released(
    tree: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    folder, unlink = tree / ".chirp-migrate", Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        monkeypatch.setattr(Path, "unlink", unlink)
        error = PermissionError(errno.EACCES, "Permission denied", str(self))
        error.winerror = code  # type: ignore[attr-defined]
        raise error

    with hold_lock(folder):
        monkeypatch.setattr(Path, "unlink", refuse)
    assert (folder / "lock").exists() is (code is None)
    with hold_lock(folder):
        pass
    assert snapshot(tree) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="another call there")
def test_a_file_system_that_fails_to_lock_is_one_sentence(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(CommitFailed, match="Input/output error: nothing was changed"):
        commit_plan(plan_of(tree, FilePlan("a.py", None, b"x", "scaffold")))
    assert not (tree / "a.py").exists()


def test_a_lock_taken_over_has_no_rest_of_the_former_text(tree: Path) -> None:
    folder = tree / ".chirp-migrate"
    folder.mkdir()
    (folder / "lock").write_text("1 " + "x" * 200)
    with hold_lock(folder):
        assert (folder / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs many processes at once")
def test_many_processes_never_hold_it_together(tree: Path) -> None:
    folder = tree / ".chirp-migrate"
    witness = tree / "witness"

    def work() -> None:
        done = 0
        while done < 30:
            try:
                with hold_lock(folder):
                    os.close(os.open(witness, os.O_CREAT | os.O_EXCL))  # fails if another one is inside
                    witness.unlink()
                    done += 1
            except WriteRefused:
                os.sched_yield()

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            os._exit(0 if in_child(work) == 0 else 1)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0, 0, 0]
    assert snapshot(tree) == {}


def _dead_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid
