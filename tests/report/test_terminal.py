"""The report in a terminal: its order, what it explains, and that every line fits."""

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
from chirp_migrate.plans.plan import Finding, FindingStatus, Plan, Safety, SkippedFile
from chirp_migrate.report.contents import FileDetails, FindingDetails, HunkDetails, ReportContents, RunDetails
from chirp_migrate.report.hunks import ChangeRow, ChangeSection
from chirp_migrate.report.reading import read_report_contents
from chirp_migrate.report.terminal.render import show_report
from chirp_migrate.report.terminal.summary import show_verify_report
from chirp_migrate.review.loader_account import LoaderLedger
from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.verify.measures.metric_data import Metric
from chirp_migrate.verify.measures.targets import TargetVerdict
from chirp_migrate.verify.verdict import Verdict
from chirp_migrate.verify.verify_report import (
    DetectableDifference,
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


def verdict(text: str = "faster", **changes: object) -> VerifyReport:
    ratio, zero_cost_ratio = Ratio(0.4, 0.36, 0.45), Ratio(0.32, 0.3, 0.34)
    seconds = {"before": [2.5, 2.4, 2.6], "after": [1.0, 1.1, 0.9], "cached": [0.8, 0.8]}
    found = VerifyReport(
        verdict=text,
        exit_code=0,
        reason="all entry points together: 60.0 % less time (95 % interval 55.0 to 64.0 %)",
        threshold=0.2,
        ratio=ratio,
        zero_cost_ratio=zero_cost_ratio,
        ratios={SINGLE: ratio},
        seconds={side: {SINGLE: taken} for side, taken in seconds.items()},
        total_seconds=seconds,
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
        targets=[TargetVerdict("R-004", "more than 10 batches/s", "met", 40.0, "40 batches/s", False)],
        smallest_adjusted_p={SINGLE: 0.47},
        noticed={SINGLE: {"mean": DetectableDifference(0.19, None, (500, 500))}},
        described=RunDescription(
            rounds="4 made, 3 count, 1 of them though others used more than 10% of the CPUs.",
            machine="AMD EPYC, 2 usable CPUs, no GPU",
            workload="150 synthetic samples",
        ),
        before="the files before `apply`, from its journal",
        tool="chirp-migrate 0.1.0",
        created="2026-03-01T12:00:00Z",
    )
    return msgspec.structs.replace(found, **changes)


def finding(**changes: object) -> FindingDetails:
    found = Finding(
        "CHP001", "dataloader-factory", "utils/train.py", 7, 5, "loader built by hand: the factory builds it",
        Safety.SAFE, FindingStatus.REWRITE, hunk=1,
    )  # fmt: skip
    return FindingDetails(replace(found, **changes), "A loader built by hand fixes its workers.", "x = DataLoader(y)")  # type: ignore[arg-type]


def hunk(*rows: ChangeRow, **changes: object) -> HunkDetails:
    section = ChangeSection(rows, within="Trainer.fit")
    imports = ("from chirpid_patch import OptimalDataLoaderFactory",)
    hunk = HunkDetails("utils/train.py:1", 1, "rewrite", (finding(),), imports, (section,))
    return replace(hunk, **changes)  # type: ignore[arg-type]


ROWS = (
    ChangeRow(" ", 6, 9, "    def fit(self):"),
    ChangeRow("-", 7, None, "        loader = DataLoader(self.data)"),
    ChangeRow("+", None, 10, "        loader = OptimalDataLoaderFactory.create_training_loader(self.data)"),
    ChangeRow("+", None, 11, LONG_LINE),
)


def run(*files: FileDetails, **changes: object) -> RunDetails:
    left_alone = {"status": FindingStatus.REPORT, "message": "the class is used as a value", "hunk": None}
    reported = [finding(**left_alone, line=line, why="used-as-value") for line in (40, 52)]
    found = [one.finding for file in files for each in file.hunks for one in each.findings]
    reported_run = RunDetails(
        number=1,
        created="2026-03-01T11:00:00Z",
        tool="chirp-migrate 0.1.0",
        files=files,
        reported=tuple(reported),
        skipped=(SkippedFile("old.py", "it does not parse"),),
        left_out=(SkippedFile(".venv", "a virtual environment"),),
        ledger=LoaderLedger.of(Plan(Path(), (), (*found, *(one.finding for one in reported)), ())),
        notes=(),
    )
    return replace(reported_run, **changes)  # type: ignore[arg-type]


FOLLOWS = hunk(ChangeRow("+", None, 3, "import x"), number=0, kind="follows", findings=(), imports=())
TRAIN = FileDetails("utils/train.py", "rewrite", "rewrite", 3, 1, (hunk(*ROWS), FOLLOWS))
RISKY = finding(rule="CHP010", safety=Safety.BEHAVIOUR, cell=3, line=2)
CELL = hunk(findings=(RISKY,), sections=(ChangeSection(ROWS, cell=3),))
NOTEBOOK = FileDetails("Train.ipynb", "rewrite", "rewrite", 2, 1, (CELL,))
WHOLE = hunk(ChangeRow("+", None, 1, "SHIPPED = 1"), kind="file", findings=())
ADDED = FileDetails("utils/dataloader_factory.py", "create", "scaffold", 1, 0, (WHOLE,))
SIMULATED = SimulatedDevice(step_ms=8, what="SIMULATED: each training batch is followed by a device step of 8 ms.")
CONTENTS = ReportContents(
    "backend",
    (run(TRAIN, NOTEBOOK, ADDED), run(TRAIN, number=2, ledger=None)),
    verdict(simulated=SIMULATED),
    ("These files have changed since the verification, so verify again: a.py.",),
)
EVIL_HUNK = hunk(ChangeRow("-", 1, None, HOSTILE), ChangeRow("+", None, 1, f"\t{HOSTILE}\r"))
EVIL = ReportContents(
    HOSTILE,
    (
        run(
            FileDetails(HOSTILE, "rewrite", "rewrite", 1, 1, (EVIL_HUNK,)),
            notes=(HOSTILE,),
            skipped=(SkippedFile(HOSTILE, HOSTILE),),
        ),
    ),
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


def lines(
    contents: ReportContents = CONTENTS, width: int = 80, colour: bool = False, verbose: bool = False
) -> list[str]:
    stream = io.StringIO()
    show_report(contents, Screen(stream, width=width, colour=colour, verbose=verbose))
    return stream.getvalue().splitlines()


def text(contents: ReportContents = CONTENTS, width: int = 80) -> str:
    """The report as one line, so that a sentence can be looked for however it is wrapped."""
    return " ".join(" ".join(lines(contents, width, verbose=True)).split())


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_whole_report_is_what_somebody_has_read(name: str, width: int) -> None:
    """After a change that is meant: `python tests/report/test_terminal.py`, and read what git shows."""
    kept = SNAPSHOTS / f"{name}-{width}.txt"
    assert lines(CONTENTS_BY_NAME[name], width) == kept.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("contents", [CONTENTS, EVIL], ids=["plain", "hostile"])
@pytest.mark.parametrize("width", [40, 57, 80, 120, 159, 160, 200])
def test_no_line_is_wider_than_the_terminal(contents: ReportContents, width: int) -> None:
    shown = lines(contents, width)
    assert max(columns(line) for line in shown) <= width
    assert all(line.isprintable() for line in shown)


@pytest.mark.parametrize("width", [80, 160])
def test_colours_change_nothing_but_the_colour(width: int) -> None:
    coloured = lines(EVIL, width, colour=True)
    assert any(COLOUR.search(line) for line in coloured)
    assert [COLOUR.sub("", line) for line in coloured] == lines(EVIL, width)


def test_every_verdict_is_put_into_words() -> None:
    assert len({text(replace(CONTENTS, verdict=verdict(one.text))) for one in Verdict}) == len(Verdict)


def test_lost_time_is_shown_as_such() -> None:
    ratio, seconds = Ratio(1.5, 1.4, 1.6), {"before": [1.0], "after": [1.5]}
    slower = verdict("slower", ratio=ratio, zero_cost_ratio=None, ratios={}, total_seconds=seconds)
    assert "1.00 1.50 ##########> -50 % [-60, -40] " in text(replace(CONTENTS, verdict=slower))


@pytest.mark.parametrize("width", [40, 80, 160])
def test_of_a_long_line_nothing_is_lost(width: int) -> None:
    assert "".join(LONG_LINE.split()) in "".join("".join(lines(width=width)).split())


def test_without_a_verdict_it_says_how_to_get_one() -> None:
    shown = text(replace(CONTENTS, verdict=None))
    assert "`chirp-migrate verify`" in shown
    assert "zero-cost loading:" not in shown


def test_the_words_are_explained_those_of_the_figures_included() -> None:
    shown = text()
    explained = shown[shown.index("TERMS") :]
    for word in ("hunk", "loader", "entry point", "interval", "zero-cost loading", "samples per second"):
        assert f" {word}: " in explained


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
    assert "CHP001" in shown and "5 - return DataLoader(train, batch_size=8, shuffle=True)" in shown
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
        for width in (40, 80, 160):
            shown = "".join(f"{line}\n" for line in lines(contents, width))
            (SNAPSHOTS / f"{name}-{width}.txt").write_text(shown, encoding="utf-8")
