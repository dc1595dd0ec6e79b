"""Programs made up at random do after their migration what they did before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "soundness.py"


@pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")
@pytest.mark.parametrize("programs", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_programs_made_up_at_random_do_the_same(programs: int) -> None:
    # Others than those of `make bench-soundness`.
    command = [sys.executable, str(SCRIPT), "--programs", str(programs), "--first", "7000000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    rewritten = {line.split(" | ")[0].strip("| ") for line in done.stdout.splitlines() if line.startswith("| CHP")}
    assert programs < 200 or {"CHP001", "CHP002", "CHP003", "CHP004", "CHP006", "CHP007", "CHP012"} <= rewritten
    assert f"0 of {programs} programs differ" in done.stdout
