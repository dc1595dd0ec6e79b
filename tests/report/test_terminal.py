"""The report in a terminal: what it shows, and that every line fits."""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.cells import cell_len as columns

from chirp_migrate.cli import main
from chirp_migrate.console.screen import Screen, render_to_text
from chirp_migrate.doctor.doctor_report import DoctorReport, Problem, WatchedEntryPoint
from chirp_migrate.plans.plan import FilePlan, Finding, FindingStatus, Plan, Safety, SkippedFile
from chirp_migrate.report.contents import ReportContents, RunDetails
from chirp_migrate.report.reading import read_report_contents
from chirp_migrate.report.terminal.render import show_report
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.metrics import Metric, TargetVerdict
from chirp_migrate.verify.timing.rounds import Rounds, TimedRound
from chirp_migrate.verify.verify_report import (
    EntryVerdict,
    ReportedMetrics,
    RunDescription,
    SimulatedDevice,
    TrainingDifference,
    VerifyReport,
)

SINGLE = "training_utils.fast_single_fold_training_with_predefined_split"
SNAPSHOTS = Path(__file__).parent / "snapshots"
HOSTILE = "\x1b]0;owned\x07 </script> \N{RIGHT-TO-LEFT OVERRIDE}鳥の声 " + "long" * 60
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONG_LINE = f"        self.mean = mean if torch.is_tensor(mean) else {'nested(' * 20}mean{')' * 20}"


def rounds(seconds: dict[str, list[float]]) -> Rounds:
    """Rounds in which one entry point took these seconds on each side."""
    number = len(seconds["before"])
    return Rounds(made=[TimedRound({side: {SINGLE: of[one]} for side, of in seconds.items()}) for one in range(number)])


def verdict(text: str = "faster", **changes: object) -> VerifyReport:
    ratio, zero_cost_ratio = Ratio(0.4, 0.36, 0.45, 3), Ratio(0.32, 0.3, 0.34, 3)
    found = VerifyReport(
        verdict=text,
        exit_code=0,
        reason="all entry points together: 60.0 % less time (95 % interval 55.0 to 64.0 %)",
        threshold=0.2,
        ratio=ratio,
        zero_cost_ratio=zero_cost_ratio,
        ratios={SINGLE: ratio},
        rounds=rounds({"before": [2.5, 2.4, 2.6], "after": [1.0, 1.1, 0.9], "cached": [0.8, 0.8, 0.8]}),
        verdicts={SINGLE: EntryVerdict("meets the threshold", zero_cost_ratio)},
        measures=ReportedMetrics(
            definitions=[
                Metric("samples_per_s", "samples/s", "samples per second", "samples taken, by time", ""),
                Metric("wait_p50_ms", "ms", "wait for a batch, median", "from asking to having", ""),
            ],
            figures={
                "before": {"samples_per_s": 240.0, "wait_p50_ms": 14.2},
                "after": {"samples_per_s": 600.0, "wait_p50_ms": 0.9},
            },
        ),
        targets=[TargetVerdict("R-004", "more than 10 batches/s", "met", 40.0, "40 batches/s")],
        smallest_adjusted_p={SINGLE: 0.47},
        detectable_changes={SINGLE: 0.19},
        described=RunDescription(
            rounds="4 made, 3 count, 1 of them though others used more than 10% of the CPUs.",
            machine="AMD EPYC, 2 usable CPUs, no GPU",
            workload="150 synthetic samples",
            compared="every batch, loss and result",
        ),
        before="the files before `apply`, from its journal",
        tool="chirp-migrate 0.1.0",
        created="2026-03-01T12:00:00Z",
    )
    return msgspec.structs.replace(found, **changes)


def finding(**changes: object) -> Finding:
    found = Finding(
        "CHP001", "dataloader-factory", "utils/train.py", 2, 5, "loader built by hand: the factory builds it",
        Safety.SAFE, FindingStatus.REWRITE, hunk=1,
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


def changed(path: str, before: str | None, after: str, note: str = "rewrite") -> FilePlan:
    return FilePlan(path, None if before is None else before.encode(), after.encode(), note)


def run(*files: FilePlan, **changes: object) -> RunDetails:
    left_alone = {"status": FindingStatus.REPORT, "message": "the class is used as a value", "hunk": None}
    reported = [finding(**left_alone, line=line, why="used-as-value") for line in (40, 52)]
    rewritten = [finding(path=file.path) for file in files if file.note == "rewrite"]
    plan = Plan(
        Path(),
        files,
        (*rewritten, *reported),
        (SkippedFile("old.py", "it does not parse"),),
        left_out=(SkippedFile(".venv", "a virtual environment"),),
    )
    return replace(RunDetails(1, "2026-03-01T11:00:00Z", "chirp-migrate 0.1.0", plan), **changes)  # type: ignore[arg-type]


BEFORE = "def fit(self):\n    loader = DataLoader(self.data)\n"
AFTER = f"import x\n\ndef fit(self):\n    loader = OptimalDataLoaderFactory.create_loader(self.data)\n{LONG_LINE}\n"
TRAIN = changed("utils/train.py", BEFORE, AFTER)
ADDED = changed("utils/dataloader_factory.py", None, "SHIPPED = 1\n", "scaffold")
SIMULATED = SimulatedDevice(step_ms=8, what="SIMULATED: each training batch is followed by a device step of 8 ms.")
PROBLEM = Problem(
    check="overlap", message="Validation samples are also training samples.", evidence="8 of 8 samples are equal.",
    fix="Split the samples once.", path="train.py", line=7, entry_points=(SINGLE,),
)  # fmt: skip
WATCHED = DoctorReport(
    tool="chirp-migrate 0.1.0", problems=[PROBLEM], notes=[], exit_code=1,
    entry_points=[WatchedEntryPoint(label=SINGLE, seconds=1.5, loaders=2, passes=4, batches=16)],
)  # fmt: skip
WITHOUT_PLAN = run(number=2, has_plan=False, plan=Plan(Path(), (TRAIN, ADDED), (), ()))
CONTENTS = ReportContents(
    "backend",
    (run(TRAIN, ADDED), WITHOUT_PLAN),
    verdict(simulated=SIMULATED),
    ("These files have changed since the verification, so verify again: a.py.",),
    WATCHED,
)
EVIL_RUN = run(changed(HOSTILE, "a\nb\n", f"a\n\t{HOSTILE}\r\n"))
EVIL = ReportContents(
    HOSTILE,
    (replace(EVIL_RUN, plan=replace(EVIL_RUN.plan, notes=(HOSTILE,), skipped=(SkippedFile(HOSTILE, HOSTILE),))),),
    verdict(
        reason=HOSTILE,
        differences=[TrainingDifference("", "", HOSTILE)],
        notes=[HOSTILE],
        output_tail=HOSTILE,
        described=msgspec.structs.replace(verdict().described, machine=HOSTILE),
    ),
    (HOSTILE,),
)

CONTENTS_BY_NAME = {"plain": CONTENTS, "hostile": EVIL}
#: Widths of the terminal, and whether everything is shown there.
SHOWN_AT = {40: False, 80: False, 160: True}


def lines(
    contents: ReportContents = CONTENTS, width: int = 80, colour: bool = False, verbose: bool = False
) -> list[str]:
    stream = io.StringIO()
    show_report(contents, Screen(stream, width=width, colour=colour, verbose=verbose))
    return stream.getvalue().splitlines()


def text(contents: ReportContents = CONTENTS, width: int = 80) -> str:
    """The report as one line, so that a sentence can be looked for however it is wrapped."""
    return " ".join(" ".join(lines(contents, width, verbose=True)).split())


@pytest.mark.parametrize("width", SHOWN_AT)
@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_whole_report_is_what_somebody_has_read(name: str, width: int) -> None:
    """After a change that is meant: `python tests/report/test_terminal.py`, and read what git shows."""
    kept = SNAPSHOTS / f"{name}-{width}.txt"
    shown = lines(CONTENTS_BY_NAME[name], width, verbose=SHOWN_AT[width])
    assert shown == kept.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("contents", [CONTENTS, EVIL], ids=["plain", "hostile"])
@pytest.mark.parametrize("width", [40, 57, 80, 120, 159, 160, 200])
def test_no_line_is_wider_than_the_terminal(contents: ReportContents, width: int) -> None:
    shown, everything = lines(contents, width), lines(contents, width, verbose=True)
    diff = next(number for number, line in enumerate(everything) if line.startswith("# "))
    assert max(columns(line) for line in (*shown, *everything[:diff])) <= width, "only lines of the diff are wider"
    assert all(line.isprintable() for line in (*shown, *everything))


@pytest.mark.parametrize("width", [80, 160])
def test_colours_change_nothing_but_the_colour(width: int) -> None:
    coloured = lines(EVIL, width, colour=True, verbose=True)
    assert any(COLOUR.search(line) for line in coloured)
    assert [COLOUR.sub("", line) for line in coloured] == lines(EVIL, width, verbose=True)


def test_lost_time_is_shown_as_such() -> None:
    timed = rounds({"before": [1.0], "after": [1.5]})
    slower = verdict("slower", ratio=Ratio(1.5, 1.4, 1.6), zero_cost_ratio=None, ratios={}, rounds=timed)
    assert "1.00 1.50 ##########> -50 % [-60, -40] " in text(replace(CONTENTS, verdict=slower))


@pytest.mark.parametrize("width", [40, 80, 160])
def test_of_a_long_line_nothing_is_lost(width: int) -> None:
    assert "".join(LONG_LINE.split()) in "".join("".join(lines(width=width, verbose=True)).split())


def test_without_a_verdict_it_says_how_to_get_one() -> None:
    shown = text(replace(CONTENTS, verdict=None))
    assert "`chirp-migrate verify`" in shown
    assert "zero-cost loading:" not in shown


def test_only_the_verdict_and_the_notices_are_printed_if_nothing_else_is_wanted() -> None:
    shown = render_to_text(lambda screen: show_report(CONTENTS, screen), quiet=True).splitlines()
    assert shown == [
        "Migration of backend",
        "!  These files have changed since the verification, so verify again: a.py.",
        "",
        "Verdict: faster. All entry points together: 60.0 % less time (95 % interval",
        "  55.0 to 64.0 %).",
    ]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backend of one loader, migrated."""
    root = tmp_path_factory.mktemp("backend")
    (root / "train.py").write_text(
        "from torch.utils.data import DataLoader\n\n\ndef loaders(train):\n"
        "    return DataLoader(train, batch_size=8, shuffle=True)\n"
    )
    assert CliRunner().invoke(main, ["apply", str(root), "--quiet"]).exit_code == 0
    return root


def test_a_real_migration_is_told(migrated: Path) -> None:
    shown = text(read_report_contents(migrated), width=120)
    assert "CHP001" in shown and "- return DataLoader(train, batch_size=8, shuffle=True)" in shown
    assert "+ return OptimalDataLoaderFactory.create_training_loader(" in shown


def test_what_is_piped_has_no_colours_unless_asked_for(migrated: Path) -> None:
    piped = CliRunner().invoke(main, ["report", str(migrated)], env={"COLUMNS": "100"}, color=True)
    assert piped.exit_code == 0
    assert piped.output.splitlines() == lines(read_report_contents(migrated), 100)
    forced = CliRunner().invoke(main, ["report", str(migrated), "--color", "always"], color=True)
    assert forced.output.splitlines() == lines(read_report_contents(migrated), 80, colour=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals there")
@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_on_a_terminal_it_is_coloured_and_fits(migrated: Path, variables: dict[str, str]) -> None:
    pexpect = pytest.importorskip("pexpect")
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "chirp_migrate", "report", str(migrated)],
        env={**kept, "TERM": "xterm-256color", **variables},
        dimensions=(50, 90),
        encoding="utf-8",
        timeout=60,
    )
    shown = child.read().splitlines()
    child.close()
    assert child.exitstatus == 0
    assert shown == lines(read_report_contents(migrated), 90, colour=not variables)


@pytest.mark.parametrize("width", [60, 80, 99])
def test_what_verify_prints_fits_too(width: int) -> None:
    lines = render_to_text(lambda screen: show_verify_report(verdict(), screen), width, verbose=True).splitlines()
    assert lines[0].startswith("Verdict: faster") and max(map(columns, lines)) <= width
    assert any("60 % [55, 64]" in line for line in lines)


if __name__ == "__main__":
    for name, contents in CONTENTS_BY_NAME.items():
        for width, verbose in SHOWN_AT.items():
            shown = "".join(f"{line}\n" for line in lines(contents, width, verbose=verbose))
            (SNAPSHOTS / f"{name}-{width}.txt").write_text(shown, encoding="utf-8")
