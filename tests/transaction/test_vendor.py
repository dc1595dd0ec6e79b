"""``--vendor`` makes the runtime part of the backend, under the same import name."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import chirpid_patch
from chirp_migrate.additions.vendor import vendor_files
from chirp_migrate.errors import Refused

RUNTIME = Path(chirpid_patch.__file__).parent


def vendor(root: Path) -> None:
    """Write what is planned."""
    for file in vendor_files(root):
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.after)


def test_every_module_of_the_runtime_is_planned_and_nothing_written(tmp_path: Path) -> None:
    planned = vendor_files(tmp_path)
    modules = {path.relative_to(RUNTIME.parent).as_posix() for path in RUNTIME.rglob("*.py")}
    assert {file.path for file in planned} == modules | {"chirpid_patch/py.typed"}
    assert {(file.before, file.note) for file in planned} == {(None, "vendor")}
    assert list(tmp_path.iterdir()) == []


def test_a_current_copy_needs_nothing_and_an_older_one_is_brought_up_to_date(tmp_path: Path) -> None:
    vendor(tmp_path)
    assert vendor_files(tmp_path) == []
    (tmp_path / "chirpid_patch" / "__init__.py").write_bytes(b"# older\n")
    (file,) = vendor_files(tmp_path)
    assert (file.path, file.before) == ("chirpid_patch/__init__.py", b"# older\n")
    assert file.after == (RUNTIME / "__init__.py").read_bytes()


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_something_else_of_that_name_is_not_touched(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "chirpid_patch"
    if kind == "folder":
        target.mkdir()
        (target / "mine.py").write_text("x = 1\n")
    elif kind == "file":
        target.write_text("x = 1\n")
    else:
        target.symlink_to(RUNTIME, target_is_directory=True)
    with pytest.raises(Refused, match="--vendor"):
        vendor_files(tmp_path)


@pytest.mark.slow
def test_the_copy_stands_on_its_own(tmp_path: Path) -> None:
    """Imported from the backend, without chirp_migrate, and not from where this program is installed."""
    vendor(tmp_path)
    code = (
        "import sys; sys.path.insert(0, '.'); sys.modules['chirp_migrate'] = None\n"
        "import chirpid_patch; print(chirpid_patch.__file__)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).resolve() == (tmp_path / "chirpid_patch" / "__init__.py").resolve()
    for path in (tmp_path / "chirpid_patch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("chirp_migrate"), path
