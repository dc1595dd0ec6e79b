"""What somebody reads first."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_first_apply_prints_what_fits_a_screen(migrated: Path) -> None:
    shown = migrated.with_name("printed.txt").read_text().splitlines()
    assert len(shown) <= 41 and max(map(len, shown[:30])) <= 80
    assert "chirp-migrate rollback" in shown[-1]
