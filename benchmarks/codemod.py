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
from codemod_bench.packages import PACKAGES, Package, Unavailable, default_cache, fetch, unpack
from codemod_bench.speed import Timed, contenders, install_torchfix, measure, usable_cpus
from codemod_bench.survey import Surveyed, survey
from harness import Progress, check_option, conditions, end, output_option, write

_ROUNDS = 3
_TREES = ("lightning", "pytorch-ignite", "accelerate", "avalanche-lib")


def _chosen(names: tuple[str, ...]) -> list[Package]:
    wanted = [part.strip() for joined in names for part in joined.split(",")]
    known = {package.name: package for package in PACKAGES}
    unknown = sorted(set(wanted) - known.keys())
    if unknown:
        raise click.BadParameter(f"there is no package {unknown[0]!r}; the packages are {', '.join(known)}")
    return [known[name] for name in wanted]


def _survey(packages: list[Package], cache: Path, keep: Path | None, progress: Progress) -> list[Surveyed]:
    results = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) if keep is None else keep
        for number, package in enumerate(packages, 1):
            progress.step(f"[{number}/{len(packages)}] {package.name} {package.version}")
            try:
                result = survey(package, cache, scratch, keep=keep is not None)
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
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            tree = unpack(fetch(package, cache), Path(folder))
            name = f"{package.name} {package.version}"
            progress.step(name)
            results.append(measure(name, tree, everyone, rounds, jobs, progress))
    return results


def _grow(packages: list[Package], sizes: str, cache: Path, progress: Progress) -> list[growth.Grown]:
    if not all(one.strip().isdecimal() for one in sizes.split(",")):
        raise click.BadParameter(f"pass numbers of files, separated by commas, such as 500,1000, not {sizes!r}.")
    return growth.measure(packages, [int(one) for one in sizes.split(",")], cache, usable_cpus(), progress)


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
    default=",".join(map(str, growth.SIZES)),
    show_default=True,
    help="Numbers of files in the trees of the growth part (500,1000).",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for downloads.  [default: chirp-migrate-bench in the user's cache folder]",
)
@click.option(
    "--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep the surveyed trees in this folder."
)
@output_option
@check_option
def main(
    only: str | None,
    packages: tuple[str, ...],
    trees: tuple[str, ...],
    rounds: int,
    sizes: str,
    cache: Path | None,
    keep: Path | None,
    output: Path,
    check: bool,
) -> None:
    """Migrate packages from PyPI, check the result, and compare the time with other tools."""
    cache, progress = cache or default_cache(), Progress()
    chosen = _chosen(packages) if packages else list(PACKAGES)
    timed_trees = _chosen(trees)
    surveyed = _survey(chosen, cache, keep, progress) if only in (None, "survey") else []
    timed = _speed(timed_trees, cache, rounds, progress) if only in (None, "speed") else []
    grown = _grow(chosen, sizes, cache, progress) if only in (None, "growth") else []
    progress.end()
    settings: report.Settings = {
        **conditions(1),
        "rounds": rounds,
        "reduced": bool(packages) or (bool(timed) and rounds < _ROUNDS),
        "packages": [asdict(package) for package in chosen],
    }
    reached = report.outcomes(surveyed, timed, grown, contenders(usable_cpus(), Path("torchfix")))
    text = report.as_markdown(surveyed, timed, grown, reached, settings)
    name = f"codemod-{only}" if only else "codemod"
    click.echo(text)
    write(output, name, text, report.as_data(surveyed, timed, grown, reached, settings))
    end(reached, check)


if __name__ == "__main__":
    main()
