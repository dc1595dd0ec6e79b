"""A copy of the fixture backend, migrated once through the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from support import FIXTURES, copy_of, run

FIXTURE = FIXTURES / "backend"


def fingerprint(folder: Path) -> dict[str, str]:
    """Mode and hash of every file, and the folders, of a tree."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in path.parts:
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[name] = f"{path.stat().st_mode:o} {content}"
    return found


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture backend after ``chirp-migrate apply``, its findings and what was printed beside it."""
    backend = copy_of("backend", tmp_path_factory.mktemp("end_to_end") / "backend")
    result = run("apply", backend, "--json", backend.with_name("findings.json"))
    assert result.exit_code == 0, result.stderr
    backend.with_name("printed.txt").write_text(result.stdout)
    return backend
