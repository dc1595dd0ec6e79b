"""Trees that somebody made to break a tool: what cannot be handled is named in a sentence, nothing hangs, and the rest
is migrated and comes back to the byte. By way of the command line."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import run, sentence
from transaction_tools import rewrites

from chirp_migrate.engine.discover import LARGEST_FILE_BYTES, discover_files
from chirp_migrate.transaction.commit import commit_plan

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the files are those of POSIX systems")

LOADER = "from torch.utils.data import DataLoader\n\nloader = DataLoader([1], 4)\n"
#: Whoever needs longer hangs.
PATIENCE_S = 120
DEPTH = 1_100


def ordinary() -> list[str]:
    """What runs a command as a user who may not read everything; nothing where we are one."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]


def run_ordinary(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line; a traceback is never what a user may see."""
    prefix = ordinary()
    if prefix and shutil.which(prefix[0]) is None:
        pytest.skip("root reads everything, and rights cannot be dropped here")
    command = [*prefix, sys.executable, "-m", "chirp_migrate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False)
    assert "Traceback" not in done.stderr + done.stdout
    return done


def nested(opening: str, closing: str, depth: int = 5_000) -> Callable[[Path], object]:
    """A file with an expression that is nested deeply."""
    return lambda path: path.write_text(f"{LOADER}x = {opening * depth}1{closing * depth}\n")


def socket_at(path: Path) -> None:
    """A socket in the file system; its name must be short, so that it is made from beside it."""
    code = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, path.name], cwd=path.parent, check=True)


def private(path: Path) -> None:
    """A file that nobody may read."""
    path.write_text(LOADER)
    path.chmod(0)


#: Files that are read, or should be, and the sentence on each.
UNREADABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "parentheses.py": (nested("(", ")"), "nested too deeply"),
    "brackets.py": (nested("[", "]"), "nested too deeply"),
    "signs.py": (nested("-", "", 20_000), "nested too deeply"),
    "sum.py": (nested("1 + ", "", 20_000), "nested too deeply"),
    "calls.py": (lambda path: path.write_text(f"{LOADER}x = a{'()' * 20_000}\n"), "nested too deeply"),
    "nul.py": (lambda path: path.write_bytes(LOADER.encode() + b"\0\n"), "NUL bytes"),
    "cookie.py": (lambda path: path.write_text("# coding: nonsense\n" + LOADER), "unknown encoding: nonsense"),
    "rot13.py": (lambda path: path.write_text("# coding: rot13\n" + LOADER), "not a text encoding"),
    "latin.py": (lambda path: path.write_bytes(b"# coding: utf-8\n# \xe4\n" + LOADER.encode()), "not valid utf-8"),
    "private.py": (private, "Permission denied"),
}

#: What is not even opened, and why.
LEFT_OUT: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe.py": (lambda path: os.mkfifo(path), "not a regular file"),
    "socket.py": (socket_at, "not a regular file"),
    "loop.py": (lambda path: path.symlink_to(path.name), "a link to a missing target"),
    "loop": (lambda path: path.symlink_to(path.name), ""),  # a name that no run looks at
    "ring": (lambda path: path.symlink_to("..", target_is_directory=True), "a link to a folder"),
    "zeros.py": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "huge.py": (lambda path: (path.write_text(LOADER), os.truncate(path, 50 * 1024**2)), "larger than 4 MiB"),
    "vendor": (lambda path: (path.mkdir(), (path / "theirs.py").write_text(LOADER)), "vendored code"),
}

#: Names that are written like any other.
ODD_NAMES = [b"n\xff.py", b"two\nlines.py", b"bell\x07.py", b" .py", b"-v.py"]


@pytest.fixture
def hostile(tree: Path) -> Iterator[Path]:
    """All of it at once, beside a file that is like any other."""
    root = tree / "backend"
    root.mkdir()
    (root / "good.py").write_text(LOADER)
    for name, (make, _) in {**UNREADABLE, **LEFT_OUT}.items():
        make(root / name)
    for odd in ODD_NAMES:
        (root / os.fsdecode(odd)).write_text(LOADER)
    locked = root / "locked"
    locked.mkdir()
    (locked / "unseen.py").write_text(LOADER)
    locked.chmod(0)
    _dig(root)
    yield root
    locked.chmod(0o755)
    _fill_in(root)


def _dig(root: Path) -> None:
    """Folders that lie deeper than calls may, with a file at the bottom."""
    here = Path.cwd()
    os.chdir(root)
    try:
        for _ in range(DEPTH):
            Path("d").mkdir()
            os.chdir("d")
        Path("deep.py").write_text(LOADER)
    finally:
        os.chdir(here)


def _fill_in(root: Path) -> None:
    """Remove them again: what removes whole trees is recursive on some versions of Python."""
    bottom = root.joinpath(*["d"] * DEPTH)
    (bottom / "deep.py").unlink()
    for folder in (bottom, *bottom.parents[: DEPTH - 1]):
        folder.rmdir()


@pytest.mark.slow
def test_all_of_it_at_once(hostile: Path) -> None:
    bottom = hostile.joinpath(*["d"] * DEPTH, "deep.py")
    good = [hostile / "good.py", bottom, *(hostile / os.fsdecode(name) for name in ODD_NAMES)]
    before = snapshot_of_files(hostile)
    report = hostile.parent / "report.json"

    done = run_ordinary("apply", "--json", report, hostile)

    assert done.returncode == 1
    content = json.loads(report.read_text())
    skipped = {one["path"]: one["reason"] for one in content["skipped"]}
    for name, (_, why) in UNREADABLE.items():
        assert why in skipped[name], name
        assert "\n" not in skipped[name]
    assert "7 files rewritten" in done.stdout
    assert all("chirpid_patch" in path.read_text() for path in good)
    untouched = {*UNREADABLE, *LEFT_OUT}
    after = snapshot_of_files(hostile)
    assert {name: one for name, one in after.items() if name in untouched} == {
        name: one for name, one in before.items() if name in untouched
    }

    done = run_ordinary("rollback", hostile)
    assert done.returncode == 0 and "\x07" not in done.stdout
    assert snapshot_of_files(hostile) == before


def test_what_is_not_opened_is_left_out_with_the_reason(hostile: Path) -> None:
    left_out = {one.path: one.reason for one in discover_files(hostile).left_out}
    for name, (_, why) in LEFT_OUT.items():
        assert why in left_out.get(name, ""), name
    assert {*UNREADABLE, "good.py"} <= {*discover_files(hostile).files}


@pytest.mark.parametrize("name", ["pipe.py", "socket.py", "loop.py", "ring/ring/pipe.py", "huge.py", "zeros.py"])
def test_named_on_the_command_line_it_is_one_sentence(tree: Path, name: str) -> None:
    for known, (make, _) in LEFT_OUT.items():
        if known in name:
            make(tree / known)
    done = run("apply", tree / name)
    assert done.exit_code == 2 and Path(name).name in sentence(done)
    assert not (tree / ".chirp-migrate").exists()


@pytest.mark.parametrize("name", ["parentheses.py", "nul.py", "cookie.py"])
def test_named_on_the_command_line_it_is_said_why_it_was_left(tree: Path, name: str) -> None:
    make, why = UNREADABLE[name]
    make(tree / name)
    done = run("apply", tree / name)
    assert done.exit_code == 1 and why in done.stdout
    assert not (tree / ".chirp-migrate").exists()


def test_the_largest_file_that_is_looked_at(tree: Path) -> None:
    path = tree / "large.py"
    path.write_text(LOADER + "#" * (LARGEST_FILE_BYTES - len(LOADER)))
    assert discover_files(tree).files == discover_files(path).files == ("large.py",)
    with path.open("a") as file:
        file.write("#")
    for named in (path, tree):
        done = run("apply", named)
        assert done.exit_code == 2 and "larger than 4 MiB" in sentence(done)


@pytest.mark.skipif(not hasattr(os, "mknod") or os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_opened(tree: Path) -> None:
    (tree / "good.py").write_text("x = 1\n")
    try:
        os.mknod(tree / "device.py", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("not allowed here")
    assert [(one.path, one.reason) for one in discover_files(tree).left_out] == [("device.py", "not a regular file")]


@pytest.mark.parametrize("kind", ["pipe", "socket", "loop", "folder"])
def test_a_lock_or_kept_bytes_that_are_no_file_never_hang_a_command(tree: Path, kind: str) -> None:
    make: dict[str, Callable[[Path], object]] = {
        "pipe": os.mkfifo,
        "socket": socket_at,
        "loop": lambda path: path.symlink_to(path.name),
        "folder": Path.mkdir,
    }
    (tree / "good.py").write_text(LOADER)
    commit_plan(rewrites(tree, {"good.py": b"migrated\n"}))
    journal = tree / ".chirp-migrate"
    (kept,) = [one for one in (journal / "0001").iterdir() if one.read_bytes() == LOADER.encode()]
    kept.unlink()
    make[kind](kept)
    done = run("rollback", tree)
    assert done.exit_code == 3 and "damaged" in sentence(done)
    make[kind](journal / "lock")
    done = run("rollback", tree)
    assert done.exit_code in (3, 4) and sentence(done)
    assert (tree / "good.py").read_bytes() == b"migrated\n"


def snapshot_of_files(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """What can be compared of a tree in which not everything can be read: its own files, and the one at the bottom."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for path in (*root.iterdir(), root.joinpath(*["d"] * DEPTH, "deep.py")):
        mode = path.lstat().st_mode
        name = path.relative_to(root).as_posix()
        if path.name == ".chirp-migrate":
            continue
        readable = stat.S_ISREG(mode) and path.lstat().st_size <= LARGEST_FILE_BYTES
        found[name] = (stat.filemode(mode)[0], stat.S_IMODE(mode), path.read_bytes() if readable else b"")
    return found
