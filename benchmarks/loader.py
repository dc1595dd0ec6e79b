"""`make bench-loader`: compare the speed of the loader of `chirpid_patch`, the original code and other libraries.

All loaders do the same work on the same samples. They take turns in one process, round after round. The folder
`loader_bench/` contains the work (`workloads.py`), the loaders (`contenders.py`) and the timing (`measure.py`). The
benchmark writes `loader.json` (raw values), `loader.md` (tables) and `loader.png` (a chart).
"""

from __future__ import annotations

import gc
import tempfile
import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
from harness import Progress, check_option, conditions, end, output_option, write
from loader_bench import chart, report, targets
from loader_bench.contenders import CONTENDERS
from loader_bench.measure import Measured, measure
from loader_bench.third_party import LIBRARIES, import_all, installed_version
from loader_bench.workloads import WORKLOADS, Data, matching

from chirp_migrate.training.process import machine as machines

_FULL = {"rounds": 7, "samples": 1000}
_QUICK = {"rounds": 3, "samples": 320}


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
@click.option("--rounds", type=click.IntRange(min=1), help="Timings of each loader.  [default: 7; quick: 3]")
@click.option("--samples", type=click.IntRange(min=32), help="Number of samples.  [default: 1000; quick: 320]")
@click.option("--workloads", multiple=True, metavar="NAMES", help="Only these workloads (names or patterns a,b*).")
@click.option("--contenders", multiple=True, metavar="NAMES", help="Only these loaders (names or patterns a,b*).")
@click.option("--quick", is_flag=True, help="Fewer samples, rounds and workloads.")
@output_option
@check_option
def main(
    rounds: int | None,
    samples: int | None,
    workloads: tuple[str, ...],
    contenders: tuple[str, ...],
    quick: bool,
    output: Path,
    check: bool,
) -> None:
    """Compare data loading by original per-sample code, hand-tuned code, other libraries, and `chirpid_patch`.

    Figures are ratios of runs that take turns. Speed changes the exit code only with --check.
    """
    defaults = _QUICK if quick else _FULL
    rounds, samples = rounds or defaults["rounds"], samples or defaults["samples"]
    known = [workload.name for workload in WORKLOADS if workload.quick or not quick or workloads]
    chosen = set(_names("workloads", known, workloads or ("*",)))
    names = _names("contenders", [contender.name for contender in CONTENDERS], contenders or ("*",))
    # Some loaders have more workers than the machine has CPUs, on purpose.
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    output.mkdir(parents=True, exist_ok=True)

    import_all()
    gc.collect()
    gc.freeze()  # garbage collection then skips the objects of the imports

    progress = Progress()
    results: list[Measured] = []
    selected = [workload for workload in WORKLOADS if workload.name in chosen]
    with tempfile.TemporaryDirectory() as folder:
        data = Data(samples, Path(folder))
        for number, workload in enumerate(selected, 1):
            progress.step(f"[{number}/{len(selected)}] {workload.name}")
            results.append(measure(workload, names, data, rounds, progress))
        decodings = {kind: data.decoding(kind).amount for kind in sorted(data.decodings)}
    progress.end()

    settings: dict[str, Any] = {
        **conditions(),
        "rounds": rounds,
        "samples": samples,
        "reduced": quick or bool(workloads or contenders) or samples < _FULL["samples"] or rounds < _FULL["rounds"],
        "decoding": decodings,
    }
    libraries = {name: installed_version(name) for name in LIBRARIES}
    settings["machine"] |= {"numpy": np.__version__, "libraries": libraries}
    outcomes = targets.judge(results)
    caption = f"Medians and quartiles of {rounds} interleaved rounds. {machines.machine_summary(settings['machine'])}"
    drawn = chart.draw(results, output / "loader.png", caption)
    text = report.as_markdown(results, outcomes, settings, "loader.png" if drawn else None)
    click.echo(text)
    write(output, "loader", text, report.as_data(results, outcomes, settings))
    click.echo("Chart: loader.png" if drawn else "No chart: matplotlib or the original loader is missing.", err=True)
    end(outcomes, check)


if __name__ == "__main__":
    main()
