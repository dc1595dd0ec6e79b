"""Plots: what is drawn, and what is said on them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from chirp_migrate.errors import UsageProblem
from chirp_migrate.report.plots import create_plot_folder, draw_plots
from chirp_migrate.verify.spec import EntryPointTiming
from chirp_migrate.verify.timing.rounds import Rounds, TimedRound
from chirp_migrate.verify.verify_report import RunDescription, SimulatedDevice, VerifyReport

FILES = ("training-time.svg", "batch-waits.svg")
HOSTILE = "train <script>alert(1)</script> & $x$ --> \x07" + "long " * 20


def report(simulated: bool = False) -> VerifyReport:
    waits = {"before": [0.02, 0.04], "after": [0.001, 0.0]}
    visits = {side: {HOSTILE: EntryPointTiming(waits_s=of, first_waits_s=[0.1])} for side, of in waits.items()}
    return VerifyReport(
        verdict="faster",
        exit_code=0,
        reason="",
        rounds=Rounds(
            made=[
                TimedRound({side: {HOSTILE: seconds} for side in ("before", "after", "cached")}, visits=visits)
                for seconds in (2.0, 1.0, 3.0)
            ]
        ),
        simulated=SimulatedDevice(step_ms=8.0, what="") if simulated else None,
        described=RunDescription(machine="one <CPU> & no GPU"),
    )


def plots_in(folder: Path, simulated: bool) -> dict[str, str]:
    assert draw_plots(folder, report(simulated)) == f"Plots in {folder}: {', '.join(FILES)}."
    return {name: (folder / name).read_text(encoding="utf-8") for name in FILES}


def test_two_plots_with_units_machine_and_escaped_names(tmp_path: Path) -> None:
    create_plot_folder(tmp_path / "new" / "plots")
    plots = plots_in(tmp_path / "new" / "plots", False)
    said = {
        "training-time.svg": ("Seconds of training", "before", "after", "model only", "2 / 2 / 2 s"),
        "batch-waits.svg": ("milliseconds", "before: median 30 ms", "after: median 0.5"),
    }
    for name, text in plots.items():
        ElementTree.fromstring(text)
        assert "<script" not in text
        assert "no GPU" in text
        assert "simulated" not in text.lower()
        shown = " ".join(line.text or "" for line in ElementTree.fromstring(text).iter() if line.text)
        assert all(words in " ".join(text.split()) or words in shown for words in said[name]), name


def test_what_is_simulated_is_said_on_every_plot(tmp_path: Path) -> None:
    for text in plots_in(tmp_path, True).values():
        assert "SIMULATED device steps of 8 ms, which use no CPU." in text


def test_plots_without_anything_measured_are_left_out(tmp_path: Path) -> None:
    nothing = VerifyReport(verdict="not equivalent", exit_code=13, reason="")
    assert draw_plots(tmp_path, nothing) == f"Plots in {tmp_path}: none, because nothing was measured."
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_the_users_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="choose another --plot"):
        create_plot_folder(tmp_path / "file" / "plots")
    (tmp_path / FILES[0]).mkdir()
    with pytest.raises(UsageProblem, match="choose another --plot"):
        draw_plots(tmp_path, report())
