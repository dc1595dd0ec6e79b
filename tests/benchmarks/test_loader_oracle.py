"""Programs made up at random see no difference between PyTorch's loader and ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "loader_oracle.py"


@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
def test_a_hundred_programs_differ_in_nothing() -> None:
    # Others than those of `make bench-oracle`. Two of a hundred spawn their workers, which takes seconds each.
    command = [sys.executable, str(SCRIPT), "--cases", "100", "--first", "7000000", "--slow-methods", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "factory: 0 of 100 differ, ours: 0 of 100 differ" in done.stdout
