"""The short form of `python -m qa interruption`: runs killed and disks filled at random, and nothing is ever lost.

Before which file operation a run dies is gone through one by one in `tests/transaction/test_kill.py`; here it is whole
commands, in processes of their own, that are interrupted from outside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="kills process groups")


def results(output: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Return the results that the check wrote, and the text that it printed. The check must find no problem."""
    command = [sys.executable, "-m", "qa", "interruption", "--variants", "1", "--output", output, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((output / "interruption.json").read_text()), done.stdout


@pytest.mark.slow
@pytest.mark.exhaustive  # test_kill.py kills at each step, test_commit.py fills the disk
def test_killed_or_out_of_disk_nothing_is_lost(tmp_path: Path) -> None:
    asked = ["--kills", "4", "--rollbacks", "1", "--full", "1", "--files", "8"]
    content, printed = results(tmp_path, *asked)
    assert all(goal["holds"] for goal in content["goals"]) and len(content["goals"]) == 3
    # Runs that are under way together are all counted: there may be one more than was asked for.
    interrupted = [one for one in content["runs"] if one["interrupted"]]
    killed = len([one for one in interrupted if one["kind"] == "apply killed"])
    assert killed >= 4
    assert len([one for one in interrupted if "killed" not in one["kind"]]) >= 1
    assert all(one["phase"] and one["printed"] for one in interrupted)
    assert f"runs of apply killed: {killed}" in printed
    assert "runs with problems: 0" in printed
    assert f"| runs of apply killed | 4 | {killed}" in (tmp_path / "interruption.md").read_text()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_where_no_disk_can_be_mounted_writes_fail_part_way(tmp_path: Path) -> None:
    content, _ = results(tmp_path, "--no-mount", "--kills", "0", "--rollbacks", "0", "--full", "2", "--files", "8")
    failed = [one for one in content["runs"] if one["interrupted"]]
    assert len(failed) >= 2 and not any(one["problems"] for one in content["runs"])
    assert all("size of files limited" in one["kind"] for one in failed)
