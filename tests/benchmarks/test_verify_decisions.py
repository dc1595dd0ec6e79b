"""The benchmark of verify's decisions draws, counts and reports rightly; how fast anything is, is not tested here."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chirp_migrate.verify.timing.rounds import TimedRound

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def part(name: str) -> Any:
    return importlib.import_module(f"decisions_bench.{name}")


def recording() -> Any:
    """A made-up pool in which every round shows exactly what was injected."""
    seconds: dict[str, dict[str, float]] = {"before": {}, "after": {}, "cached": {}}
    for function, ratio in part("recording").CONDITIONS.items():
        label = f"training_utils.{function}"
        seconds["before"][label], seconds["after"][label] = 2.0, 2.0 * ratio
    rounds = [TimedRound(seconds, others, 1.0) for others in (0.01, 0.02, 0.5, 0.03)]
    return part("recording").Pool(True, tuple(rounds))


def test_wilson_intervals_are_the_known_ones() -> None:
    rate = part("trials").Rate
    assert rate(0, 100).interval() == pytest.approx((0.0, 0.0370), abs=1e-4)
    assert rate(50, 100).interval() == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_the_trees_differ_in_epochs_alone_and_can_be_verified(tmp_path: Path) -> None:
    trees = part("recording").write_trees(tmp_path)
    texts = {side: (tree / "utils" / "training_utils.py").read_text() for side, tree in trees.items()}
    differing = [
        (old, new)
        for old, new in zip(texts["before"].splitlines(), texts["after"].splitlines(), strict=True)
        if old != new
    ]
    assert len(differing) == 8, "every condition but the one without a change"
    assert all("epochs = " in old and "epochs = " in new for old, new in differing)


def test_the_table_in_the_documentation_has_every_scenario_and_what_is_wanted() -> None:
    trials, report = part("trials"), part("report")
    tally = trials.Tally({"faster": 90, "slower": 10}, 5.0, 30)
    by_rounds = {rounds: dict.fromkeys(trials.SCENARIOS, tally) for rounds in (3, 5, 8)}
    machine = {"processor": "P", "usable_cpus": 2, "accelerator": None, "torch": "2", "threads": 1}
    settings = {"command": "make it", "trials": 100, "machine": {**machine, "python": "3", "system": "Linux"}}

    text = report.in_short({"6% noise of one time": by_rounds}, {0.0: tally, 0.02: tally}, settings)

    for each in trials.SCENARIOS:
        assert f"| {each} | 90.0 / 10.0 / 30.0 | 90.0 / 10.0 / 30.0 |" in text
    assert "| 90.0%" in text and "make it" in text and "30.0% [21.9%, 39.6%]" in text


def test_the_slower_backend_differs_in_one_wait() -> None:
    slower = importlib.import_module("verify_slower")
    text = (slower.FIXTURE / "utils" / f"{slower.MODULE}.py").read_text(encoding="utf-8")
    (added,) = set(slower.slowed(text).splitlines()) - set(text.splitlines())
    assert added.startswith("    scheduler.step = ") and "sleep(1.0)" in added
    function = slower.slowed(text).partition(f"\ndef {slower.FUNCTION}(")[2].partition("\ndef ")[0]
    assert f"{added}\n    results = _run_epochs(" in function


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_recording_is_decided_and_tabled(tmp_path: Path) -> None:
    pool = recording()
    machine = {"processor": "P", "usable_cpus": 2, "accelerator": None, "torch": "2", "threads": 1}
    settings = {"command": "as recorded", "machine": {**machine, "python": "3", "system": "Linux"}}
    raw = tmp_path / "verify-decisions.json"
    raw.write_text(json.dumps({"settings": settings, "pool": msgspec.to_builtins(pool)}))

    script = [sys.executable, str(BENCHMARKS / "verify_decisions.py"), "--recorded", "--check", "--trials", "100"]
    ended = subprocess.run(
        [*script, "--output", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )

    assert ended.returncode == 0, ended.stderr
    noises = json.loads(raw.read_text())["tallies"]
    recorded = noises["Noise of 4 recorded rounds on a machine with other load"]["12"]
    assert recorded["all 50 % less"]["verdicts"] == {"faster": 100}
    assert recorded["one 20 % slower, 15 twice as fast"]["verdicts"] == {"slower": 100}
    assert recorded["A/A"]["verdicts"] == {"not shown to be faster": 100}
    assert recorded["one 10 % slower, 15 twice as fast"]["unnamed"] == 0
    table = (tmp_path / "verify-decisions.md").read_text()
    assert "Simulated times" in table and "**no**" not in table


def test_the_documentation_has_a_place_for_the_tables(tmp_path: Path) -> None:
    document = tmp_path / "verify.md"
    document.write_bytes((BENCHMARKS.parent / "docs" / "verify.md").read_bytes())
    replace = part("report").replace_between_marks
    replace(document, "| new |\n")
    text = document.read_text()
    assert "| new |" in text and text.count("\n## ") > 3
    replace(document, "| newer |\n")
    assert "| new |" not in document.read_text()
    (tmp_path / "other.md").write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        replace(tmp_path / "other.md", "")
