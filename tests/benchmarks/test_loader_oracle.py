"""Programs made up at random see no difference between PyTorch's loader and ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "loader_oracle.py"


@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
@pytest.mark.parametrize("cases", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_programs_made_up_at_random_differ_in_nothing(cases: int) -> None:
    # Others than those of `make bench-oracle`. Two of a hundred spawn their workers, which takes seconds each.
    command = [sys.executable, str(SCRIPT), "--cases", str(cases), "--first", "7000000", "--slow-methods", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"factory: 0 of {cases} differ, ours: 0 of {cases} differ" in done.stdout
