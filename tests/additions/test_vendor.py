"""``--vendor`` makes the runtime part of the backend, under the same import name."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import modules_of

import chirpid_patch
from chirp_migrate.additions.vendor import vendor_files
from chirp_migrate.errors import WriteRefused

RUNTIME = Path(chirpid_patch.__file__).parent


def vendor(root: Path) -> None:
    """Write what is planned."""
    for file in vendor_files(root):
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.after)


def test_every_module_of_the_runtime_is_planned_and_nothing_written(tmp_path: Path) -> None:
    planned = vendor_files(tmp_path)
    modules = {path.relative_to(RUNTIME.parent).as_posix() for path in modules_of(RUNTIME)}
    assert {file.path for file in planned} == modules | {"chirpid_patch/LICENSE", "chirpid_patch/py.typed"}
    assert {(file.before, file.note) for file in planned} == {(None, "vendor")}
    assert list(tmp_path.iterdir()) == []


def test_a_current_copy_needs_nothing_and_an_older_one_is_brought_up_to_date(tmp_path: Path) -> None:
    vendor(tmp_path)
    assert vendor_files(tmp_path) == []
    (tmp_path / "chirpid_patch" / "__init__.py").write_bytes(b"# older\n")
    (file,) = vendor_files(tmp_path)
    assert (file.path, file.before) == ("chirpid_patch/__init__.py", b"# older\n")
    assert file.after == (RUNTIME / "__init__.py").read_bytes()


@pytest.mark.parametrize("way", ["a checkout", "an environment", "for development"])
def test_the_runtime_is_found_wherever_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Beside the tool, in another folder of packages, or in the checkout that it was installed from for development."""
    packages, tool, root = tmp_path / "packages", tmp_path / "tool" / "chirp_migrate", tmp_path / "root"
    place = {"a checkout": tool.parent, "an environment": packages, "for development": tmp_path / "checkout"}[way]
    information = packages / "chirpid_patch-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: chirpid-patch\nVersion: 0.1.0\n")
    shutil.copytree(RUNTIME, place / "chirpid_patch", ignore=shutil.ignore_patterns("__pycache__"))
    if way == "for development":
        origin = {"url": (place / "chirpid_patch").as_uri(), "dir_info": {"editable": True}}
        (information / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr("chirp_migrate.additions.vendor.__file__", str(tool / "additions" / "vendor.py"))
    monkeypatch.syspath_prepend(packages)
    vendored = place / "chirpid_patch" / "memory" / "vendored.py"
    vendored.write_text("# from here\n")

    assert "chirpid_patch/memory/vendored.py" in {file.path for file in vendor_files(root)}


def test_what_a_build_leaves_beside_the_modules_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "chirp_migrate"
    shutil.copytree(RUNTIME, tmp_path / "chirpid_patch", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("chirp_migrate.additions.vendor.__file__", str(tool / "additions" / "vendor.py"))
    planned = vendor_files(tmp_path / "root")
    built = tmp_path / "chirpid_patch" / "build" / "lib" / "chirpid_patch"
    built.mkdir(parents=True)
    (built / "__init__.py").write_text("")

    assert vendor_files(tmp_path / "root") == planned


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
    with pytest.raises(WriteRefused, match="--vendor"):
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
