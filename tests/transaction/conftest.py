"""Where the trees of these tests are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import MEMORY


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where the system has such a place: a killed process loses nothing that is in memory,
    and waiting for a disk some thousand times would be all that the tests do."""
    if MEMORY is None:
        folder_on_disk = tmp_path / "tree"  # tests put other things beside it
        folder_on_disk.mkdir()
        yield folder_on_disk.resolve()
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="chirp-migrate-") as folder:
        yield Path(folder).resolve()


@pytest.fixture
def public() -> Iterator[Path]:
    """An empty folder that other users can come to, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="chirp-migrate-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()
