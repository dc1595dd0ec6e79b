"""What somebody reads first."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import copy_of, run


@pytest.mark.slow
def test_a_first_apply_prints_what_fits_a_screen(tmp_path: Path) -> None:
    shown = run("apply", copy_of("backend", tmp_path / "backend")).stdout.splitlines()
    assert len(shown) <= 40 and max(map(len, shown[:30])) <= 80
    assert "chirp-migrate rollback" in shown[-1]
