"""`make bench-codemod`: migrate packages from PyPI, and compare the speed with other tools.

The benchmark has three parts. The survey part migrates copies of source distributions, and checks every rewritten file.
The speed part times whole commands on the same files, in several rounds. The growth part measures how the time grows
with the number of files. The folder `codemod_bench/` contains the packages (`packages.py`), an independent count of the
places that build a loader (`census.py`), the checks (`checks.py`, `account.py`), the timed commands (`speed.py`), and
the measurement of growth (`growth.py`). The benchmark writes `codemod.json` (raw values) and `codemod.md` (tables). If
only one part runs, the benchmark writes `codemod-survey.*`, `codemod-speed.*` or `codemod-growth.*` instead.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from codemod_bench import growth, report
from codemod_bench.packages import PACKAGES, Package, Unavailable, cache_option, chosen, fetch, keep_option, unpack
from codemod_bench.speed import Timed, contenders, install_torchfix, measure
from codemod_bench.survey import Surveyed, survey
from harness import Progress, check_option, conditions, end, output_option, write

from chirp_migrate.cli.options import WholeNumbers
from chirpid_patch.machine.cpus import usable_cpus

_ROUNDS = 3
_TREES = ("lightning", "pytorch-ignite", "accelerate", "avalanche-lib")


def _survey(packages: list[Package], cache: Path, keep: Path | None, progress: Progress) -> list[Surveyed]:
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for package in progress.each(packages):
            try:
                result = survey(package, cache, keep or Path(folder), keep=keep is not None)
            except Unavailable as error:
                raise click.ClickException(str(error)) from None
            for kind, places in result.problems.items():
                click.echo(f"    {kind}: {', '.join(places)}", err=True)
            results.append(result)
    return results


def _speed(packages: list[Package], cache: Path, rounds: int, progress: Progress) -> list[Timed]:
    jobs = usable_cpus()
    everyone = contenders(jobs, install_torchfix(cache))
    results = []
    for package in progress.each(packages):
        with tempfile.TemporaryDirectory() as folder:
            tree = unpack(fetch(package, cache), Path(folder))
            results.append(measure(str(package), tree, everyone, rounds, jobs, progress))
    return results


_EPILOG = f"""\b
Examples:
  python benchmarks/codemod.py                                   # everything, about an hour on two cores
  python benchmarks/codemod.py --only survey
  python benchmarks/codemod.py --only survey --packages timm,skorch --keep /tmp/migrated
  python benchmarks/codemod.py --only speed --trees pytorch-ignite --rounds 3
  python benchmarks/codemod.py --only growth --sizes 500,1000

Packages: {", ".join(package.name for package in PACKAGES)}
"""


@click.command(epilog=_EPILOG, context_settings={"max_content_width": 100})
@click.option("--only", type=click.Choice(["survey", "speed", "growth"]), help="Run only this part.")
@click.option("--packages", multiple=True, metavar="NAMES", help="Survey only these packages (a,b).")
@click.option(
    "--trees", multiple=True, metavar="NAMES", default=_TREES, show_default=True, help="Packages to time (a,b)."
)
@click.option("--rounds", type=click.IntRange(min=1), default=_ROUNDS, show_default=True, help="Timings of each tool.")
@click.option(
    "--sizes",
    type=WholeNumbers(1),
    default=growth.SIZES,
    show_default=True,
    help="Numbers of files in the trees of the growth part (500,1000).",
)
@cache_option
@keep_option
@output_option
@check_option
def main(
    only: str | None,
    packages: tuple[str, ...],
    trees: tuple[str, ...],
    rounds: int,
    sizes: tuple[int, ...],
    cache: Path,
    keep: Path | None,
    output: Path,
    check: bool,
) -> None:
    """Migrate packages from PyPI, check the result, and compare the time with other tools."""
    progress, surveyed_packages, timed_trees = Progress(), chosen(packages), chosen(trees)
    surveyed = _survey(surveyed_packages, cache, keep, progress) if only in (None, "survey") else []
    timed = _speed(timed_trees, cache, rounds, progress) if only in (None, "speed") else []
    grown: list[growth.Grown] = []
    if only in (None, "growth"):
        grown = growth.measure(surveyed_packages, sizes, cache, usable_cpus(), progress)
    progress.end()
    settings: report.Settings = {
        **conditions(1),
        "rounds": rounds,
        "reduced": bool(packages) or (bool(timed) and rounds < _ROUNDS),
        "packages": [asdict(package) for package in surveyed_packages],
    }
    reached = report.outcomes(surveyed, timed, grown, contenders(usable_cpus(), Path("torchfix")))
    text = report.as_markdown(surveyed, timed, grown, reached, settings)
    name = f"codemod-{only}" if only else "codemod"
    click.echo(text)
    write(output, name, text, report.as_data(surveyed, timed, grown, reached, settings))
    end(reached, check)


if __name__ == "__main__":
    main()
