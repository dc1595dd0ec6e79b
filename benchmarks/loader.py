"""`make bench-loader`: this project's loader beside the original code and other ways to do the same work.

Every loader does the same work on the same samples in one process, in turn, round after round; see
`loader_bench/` for the work (`workloads.py`), who does it (`contenders.py`) and how it is timed (`measure.py`).
Writes `loader.json` (raw values), `loader.md` (tables) and `loader.png` (a chart).
"""

from __future__ import annotations

import gc
import json
import shlex
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from loader_bench import chart, report, targets
from loader_bench.contenders import CONTENDERS
from loader_bench.measure import Measured, measure
from loader_bench.third_party import LIBRARIES, import_all, installed_version
from loader_bench.workloads import WORKLOADS, Data, matching

from chirp_migrate.training.process import machine as machines

_RESULTS = Path(__file__).resolve().parent / "results"
_FULL = {"rounds": 7, "samples": 1000}
_QUICK = {"rounds": 3, "samples": 320}


class _Progress:
    """What is going on, on standard error: rewritten in place on a terminal, else one line a workload."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._live = sys.stderr.isatty()
        self._workload = ""

    def begin(self, workload: str) -> None:
        """A new workload."""
        self._workload = workload
        if not self._live:
            click.echo(f"{self._elapsed()} {workload}", err=True)

    def __call__(self, doing: str) -> None:
        if self._live:
            click.echo(f"\r\x1b[K{self._elapsed()} {self._workload}: {doing}", err=True, nl=False)

    def end(self) -> None:
        """Nothing more to say."""
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._begun)
        return f"{seconds // 60}:{seconds % 60:02d}"


def _machine() -> dict[str, Any]:
    """What the figures were measured on and with."""
    return {
        **machines.describe(torch.get_num_threads()),
        "numpy": np.__version__,
        "libraries": {name: installed_version(name) for name in LIBRARIES},
    }


def _names(kind: str, names: list[str], patterns: tuple[str, ...]) -> list[str]:
    try:
        return matching(names, patterns)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"--{kind}") from None


_EPILOG = f"""\b
Examples:
  python benchmarks/loader.py                                  # everything, about a quarter of an hour
  python benchmarks/loader.py --quick                          # two or three minutes
  python benchmarks/loader.py --workloads 'noise*' --rounds 15
  python benchmarks/loader.py --workloads decode-io --contenders 'ours*,original*,spdl'

\b
Workloads: {", ".join(workload.name for workload in WORKLOADS[:6])},
  {", ".join(workload.name for workload in WORKLOADS[6:12])},
  {", ".join(workload.name for workload in WORKLOADS[12:])}
\b
Contenders: {", ".join(contender.name for contender in CONTENDERS[:7])},
  {", ".join(contender.name for contender in CONTENDERS[7:])}
"""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option("--rounds", type=click.IntRange(min=1), help="Timings of every contender.  [default: 7; quick: 3]")
@click.option("--samples", type=click.IntRange(min=32), help="Samples in memory.  [default: 1000; quick: 320]")
@click.option("--workloads", multiple=True, metavar="NAMES", help="Only these: names or patterns, comma-separated.")
@click.option("--contenders", multiple=True, metavar="NAMES", help="Only these: names or patterns, comma-separated.")
@click.option("--quick", is_flag=True, help="Fewer samples, rounds and workloads.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=_RESULTS,
    help="Folder for the results.  [default: benchmarks/results]",
)
@click.option("--check", is_flag=True, help="End with exit code 1 if a target does not hold.")
def main(
    rounds: int | None,
    samples: int | None,
    workloads: tuple[str, ...],
    contenders: tuple[str, ...],
    quick: bool,
    output: Path,
    check: bool,
) -> None:
    """Measure data loading side by side: the original per-sample code, hand-tuned code, other libraries, ours.

    Figures are ratios of interleaved runs. Speed decides the exit code only with --check.
    """
    defaults = _QUICK if quick else _FULL
    rounds, samples = rounds or defaults["rounds"], samples or defaults["samples"]
    known = [workload.name for workload in WORKLOADS if workload.quick or not quick or workloads]
    chosen = set(_names("workloads", known, workloads or ("*",)))
    names = _names("contenders", [contender.name for contender in CONTENDERS], contenders or ("*",))
    # More workers than CPUs are what some of the contenders are about.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    output.mkdir(parents=True, exist_ok=True)

    import_all()
    gc.collect()
    gc.freeze()  # what was imported need not be searched for garbage again, in the middle of an epoch

    progress = _Progress()
    results: list[Measured] = []
    selected = [workload for workload in WORKLOADS if workload.name in chosen]
    with tempfile.TemporaryDirectory() as folder:
        data = Data(samples, Path(folder))
        for number, workload in enumerate(selected, 1):
            progress.begin(f"[{number}/{len(selected)}] {workload.name}")
            results.append(measure(workload, names, data, rounds, progress))
        decodings = {kind: data.decoding(kind).amount for kind in sorted(data.decodings)}
    progress.end()

    settings: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/loader.py", *sys.argv[1:]]),
        "machine": _machine(),
        "rounds": rounds,
        "samples": samples,
        "reduced": quick or bool(workloads or contenders) or samples < _FULL["samples"] or rounds < _FULL["rounds"],
        "decoding": decodings,
    }
    outcomes = targets.judge(results)
    caption = f"Medians and quartiles of {rounds} interleaved rounds. {machines.line(settings['machine'])}"
    drawn = chart.draw(results, output / "loader.png", caption)
    text = report.as_markdown(results, outcomes, settings, "loader.png" if drawn else None)
    (output / "loader.md").write_text(text, encoding="utf-8")
    raw = report.as_data(results, outcomes, settings)
    (output / "loader.json").write_text(json.dumps(raw, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    click.echo(text)
    if not drawn:
        click.echo("No chart: matplotlib is not installed, or the original was left out.", err=True)
    click.echo(f"Written: {', '.join(f'loader.{kind}' for kind in ('json', 'md', *(['png'] if drawn else [])))}"
               f" in {output}", err=True)  # fmt: skip
    if check and any(outcome.holds is False for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
