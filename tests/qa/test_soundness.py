"""Programs made up at random do after their migration what they did before."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support import ROOT

from qa.soundness_programs import programs, running

#: Others than those of `python -m qa soundness`.
FIRST = 7_000_000
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are run in forks")


def test_a_few_programs_made_up_at_random_do_the_same() -> None:
    outcomes = list(running.run_programs(range(FIRST, FIRST + 5), jobs=1))
    assert [one.difference for one in outcomes] == [""] * 5
    assert sum(bool(one.rewritten) for one in outcomes) >= 2


def test_what_programs_may_show_is_documented_with_a_reason() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(running.documented()) and all(row[-1].strip() for row in rows)
    allowed = {name for number in range(600) for name in programs.make_program(number).allowed}
    assert allowed and allowed <= running.documented()


def test_objects_of_an_earlier_run_are_loaded_by_both_versions() -> None:
    saving = next(one for one in map(programs.make_program, range(FIRST, FIRST + 20)) if one.saves)
    outcome = running.outcome_of(saving.number)
    assert "pickle.loads(SAVED)" in outcome.after and outcome.rewritten and not outcome.difference


@pytest.mark.exhaustive  # a few such programs run with the fast tests
@pytest.mark.slow
def test_programs_made_up_at_random_do_the_same() -> None:
    command = [sys.executable, "-m", "qa", "soundness", "--programs", "200", "--first", str(FIRST)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    rewritten = {line.split(" | ")[0].strip("| ") for line in done.stdout.splitlines() if line.startswith("| CHP")}
    assert {"CHP001", "CHP002", "CHP003", "CHP004", "CHP006", "CHP007", "CHP012"} <= rewritten
    assert "0 of 200 programs differ" in done.stdout
