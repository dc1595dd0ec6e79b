"""Functions that benchmarks and the checks in `qa/` share: machine, order of turns, goals, tables, result files."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import jinja2
import numpy as np

from chirp_migrate.stats.ratios import Ratio
from chirp_migrate.training.process import machine as machines

__all__ = [
    "FIXTURE",
    "QA_RESULTS",
    "RESULTS",
    "ROOT",
    "TOOL",
    "Goal",
    "Progress",
    "check_option",
    "conditions",
    "end",
    "epoch_s",
    "goal_lines",
    "in_turn",
    "interval_text",
    "keep_busy",
    "made_by",
    "median_interval",
    "migrated_copy",
    "output_option",
    "page",
    "paired",
    "quartiles",
    "ratio_ends",
    "run_tool",
    "saved",
    "table",
    "template_environment",
    "turns",
    "write",
    "write_json",
]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
QA_RESULTS = ROOT / "qa" / "results"
FIXTURE = ROOT / "fixtures" / "backend"
TOOL = [sys.executable, "-m", "chirp_migrate"]
# Scripts of this folder find `qa` there only.
sys.path.append(str(ROOT))

output_option = click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    help="Folder for the results.  [default: benchmarks/results]",
)
check_option = click.option("--check", is_flag=True, help="End with exit code 1 if a goal is not reached.")

_T = TypeVar("_T")
_N = TypeVar("_N", bound=Hashable)


@dataclass(frozen=True)
class Goal:
    """A goal of a benchmark or check.

    Attributes:
        what: the measured value, in words.
        wanted: the wanted value as text.
        measured: the measured value as text; "" without a measurement.
        holds: whether the goal is reached; None without a measurement.
    """

    what: str
    wanted: str
    measured: str
    holds: bool | None


class Progress:
    """Show progress on standard error: as one line that changes on a terminal, or else as one line for each step."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._live = sys.stderr.isatty()
        self._step = ""

    @property
    def seconds(self) -> float:
        """Return the seconds since the object was created."""
        return time.monotonic() - self._begun

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._step = text
        self._show(text) if self._live else click.echo(f"{self._elapsed()} {text}", err=True)

    def each(self, items: Sequence[_T]) -> Iterator[_T]:
        """Yield the items. Each item is a step, with its number and its text."""
        for number, item in enumerate(items, 1):
            self.step(f"[{number}/{len(items)}] {item}")
            yield item

    def __call__(self, doing: str) -> None:
        """Show a part of the present step."""
        if self._live:
            self._show(f"{self._step}: {doing}")

    def count(self, number: int, of: int, found: str = "", every: int = 100) -> None:
        """Show that ``number`` of ``of`` items are done.

        If standard error is no terminal, print a line only for every ``every`` items.
        """
        text = f"{number} of {of}{found}"
        if self._live:
            self._show(text)
        elif number % every == 0:
            click.echo(f"{self._elapsed()} {text}", err=True)

    def end(self) -> None:
        """Remove the progress line from the terminal."""
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def _show(self, text: str) -> None:
        click.echo(f"\r\x1b[K{self._elapsed()} {text}", err=True, nl=False)

    def _elapsed(self) -> str:
        return f"{int(self.seconds) // 60}:{int(self.seconds) % 60:02d}"


def conditions(threads: int | None = None) -> dict[str, Any]:
    """Return a dictionary with ``command`` and ``machine``, which files of results contain.

    Args:
        threads: number of compute threads; None for the number of this process.
    """
    if threads is None:
        import torch

        threads = torch.get_num_threads()
    script = Path(sys.argv[0]).resolve()
    shown = [script.relative_to(ROOT).as_posix() if script.is_relative_to(ROOT) else script.name]
    if script.name == "__main__.py":
        shown = ["-m", script.parent.name]
    return {"command": shlex.join(["python", *shown, *sys.argv[1:]]), "machine": machines.describe_machine(threads)}


def made_by(settings: dict[str, Any]) -> str:
    """Return the command and the machine as text."""
    return f"`{settings['command']}` on {machines.machine_summary(settings['machine'])}"


def in_turn(names: Sequence[_T], number: int) -> list[_T]:
    """Return the names in the order of round ``number``.

    Every second round has the reverse order of the round before. The next two rounds begin with other names, so that
    each name is at each position equally often.
    """
    start = number // 2 % len(names) if names else 0
    turned = [*names[start:], *names[:start]]
    return turned[::-1] if number % 2 else turned


def turns(names: Sequence[_T], rounds: int) -> Iterator[tuple[int, _T]]:
    """Yield (number of the round from 0, name) for all names in all rounds. The order of the names changes."""
    return ((number, name) for number in range(rounds) for name in in_turn(names, number))


def paired(timed: Mapping[_N, Callable[[], _T]], rounds: int, warm_up: int = 1) -> dict[_N, list[_T]]:
    """Call all functions in turns, round after round, and return their results without the rounds for warm-up.

    The results of the functions at the same index belong to the same round, so that a slow phase of the machine affects
    all functions.
    """
    results: dict[_N, list[_T]] = {name: [] for name in timed}
    for number, name in turns(list(timed), rounds + warm_up):
        result = timed[name]()
        if number >= warm_up:
            results[name].append(result)
    return results


def epoch_s(loader: Iterable[Any], step: Callable[[Any], object] | None = None) -> float:
    """Return the seconds of one epoch, with a step for each batch."""
    begun = time.perf_counter()
    for batch in loader:
        if step is not None:
            step(batch)
    return time.perf_counter() - begun


def keep_busy(seconds: float) -> None:
    """Use the CPU in this thread for ``seconds``."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median."""
    draws = np.random.default_rng(0).choice(values, (4000, len(values)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(low), float(high)


def interval_text(ratio: Ratio | None, digits: int = 2, missing: str = "") -> str:
    """Return a ratio with its interval as text."""
    return missing if ratio is None else "{:.{d}f} [{:.{d}f}, {:.{d}f}]".format(*ratio_ends(ratio), d=digits)


def ratio_ends(ratio: Ratio) -> tuple[float, float, float]:
    """Return a ratio, and both ends of its interval."""
    return ratio.value, ratio.low, ratio.high


def quartiles(values: Any) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return low, median, high


def table(header: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> list[str]:
    """Return a Markdown table whose first ``left`` columns are text; all other columns are numbers."""
    marks = [*["---"] * left, *["--:"] * (len(header) - left)]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in (header, marks, *rows)]


def goal_lines(goals: Iterable[Goal]) -> list[str]:
    """Return the goals as a Markdown table."""
    words = {True: "holds", False: "**does not hold**", None: "not measured"}
    rows = [[one.what, one.wanted, one.measured, words[one.holds]] for one in goals]
    return table(["goal", "wanted", "measured", ""], rows)


def template_environment(folder: Path) -> jinja2.Environment:
    """Return the environment of the templates in a folder: ``« … »`` is a value, ``<% … %>`` a statement."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        variable_start_string="«",
        variable_end_string="»",
        comment_start_string="<#",
        comment_end_string="#>",
        block_start_string="<%",
        block_end_string="%>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
    )


def page(name: str, **values: Any) -> str:
    """Return a page of results from the template ``pages/name.md.jinja``."""
    environment = template_environment(ROOT / "benchmarks" / "pages")
    environment.globals |= {"goal_lines": goal_lines, "made_by": made_by, "table": table}
    environment.filters["lines"] = "\n".join
    return environment.get_template(f"{name}.md.jinja").render(values)


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file in one step, so that no program reads half of it."""
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def write(folder: Path, name: str, text: str, values: Any = None) -> None:
    """Write ``name.md`` and, if ``values`` is given, ``name.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if values is not None:
        write_json(folder / f"{name}.json", values)
    click.echo(f"Written: {name}.md{'' if values is None else f', {name}.json'} in {folder}", err=True)


def end(goals: Iterable[Goal], check: bool = True) -> None:
    """If ``check`` is true, exit with code 1 if a goal is not reached."""
    if check and any(one.holds is False for one in goals):
        sys.exit(1)


def run_tool(command: str, path: Path, *options: str, **settings: Any) -> tuple[int, dict[str, Any]]:
    """Run a command of the tool with ``--json``; return its exit code and its JSON document, {} if it wrote none.

    Args:
        command: name of the command.
        path: folder of the backend.
        options: further arguments of the command line.
        settings: further arguments of ``subprocess.run``.
    """
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "document.json"
        line = [*TOOL, command, str(path), "--json", str(written), *options]
        done = subprocess.run(line, check=False, capture_output=True, encoding="utf-8", **settings)
        if written.is_file():
            return done.returncode, json.loads(written.read_text(encoding="utf-8"))
        click.echo(done.stderr, err=True)
        return done.returncode, {}


def saved(ratio: dict[str, float] | None, digits: int = 0, missing: str = "") -> str:
    """Return the percent of the time that is saved, with its interval, as text; ``ratio`` is time after / before."""
    if not ratio:
        return missing
    value, low, high = (f"{100 * (1 - ratio[name]):.{digits}f}" for name in ("value", "high", "low"))
    return f"{value} % [{low}, {high}]"


def migrated_copy(fixture: Path, folder: Path) -> Path:
    """Copy a backend to ``folder``, migrate the copy with the command line, and return its path."""
    backend = folder / fixture.name
    shutil.copytree(fixture, backend, ignore=shutil.ignore_patterns("__pycache__", ".chirp-migrate"))
    subprocess.run([*TOOL, "apply", str(backend), "--no-scaffold"], check=True, stdout=subprocess.DEVNULL)
    return backend
