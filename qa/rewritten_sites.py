"""Compare the places that another revision of the tool rewrites with the places that this revision rewrites.

`python -m qa rewritten-sites REVISION [FOLDER…]` plans the migration of the packages of the survey, and of the given
folders. It makes one plan with the tool of REVISION, and one plan with the tool in this working tree (with
`--all-loaders`). The check compares the findings by rule, file, line and column. For each place that only REVISION
rewrites, the check lists the reason.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.codemod_bench.packages import Package, Unavailable, cache_option, chosen, fetch, unpack
from benchmarks.harness import QA_RESULTS, ROOT, Progress, conditions, made_by, table, write
from qa.same_plans import checked_out, planned

#: A site: rule, path, line and column.
_Site = tuple[str, str, int, int]


def _sites(plan: dict[str, Any], rules: tuple[str, ...]) -> dict[_Site, dict[str, Any]]:
    found = (one for one in plan["findings"] if one["rule"] in rules)
    return {(one["rule"], one["path"], one["line"], one["column"]): one for one in found}


def _rewritten(sites: dict[_Site, dict[str, Any]]) -> set[_Site]:
    return {site for site, finding in sites.items() if finding["status"] == "rewrite"}


def _trees(
    packages: list[Package], folders: tuple[Path, ...], cache: Path, scratch: Path
) -> Iterator[tuple[str, Path]]:
    for package in packages:
        try:
            yield str(package), unpack(fetch(package, cache), scratch / package.name)
        except Unavailable as reason:
            click.echo(str(reason), err=True)
    yield from ((folder.name, folder) for folder in folders)


@click.command()
@click.argument("revision")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--package", "packages", multiple=True, metavar="NAMES", help="Only these packages (a,b). [all]")
@click.option("--rule", "rules", multiple=True, default=("CHP006", "CHP007", "CHP012"), show_default=True)
@click.option("--write", "save", is_flag=True, help="Write qa/results/rewritten-sites.md.")
@cache_option
def main(
    revision: str, folders: tuple[Path, ...], packages: tuple[str, ...], rules: tuple[str, ...], save: bool, cache: Path
) -> None:
    """Compare the sites that REVISION rewrites with the sites that this tree rewrites."""
    before: Counter[str] = Counter()
    now: Counter[str] = Counter()
    new: Counter[str] = Counter()
    declined: dict[str, list[str]] = defaultdict(list)
    progress, names = Progress(), []
    with tempfile.TemporaryDirectory() as folder, checked_out(revision) as checkout:
        for name, tree in _trees(chosen(packages), folders, cache, Path(folder)):
            progress.step(name)
            names.append(name)
            select = ("--select", ",".join(rules))
            then = _sites(planned(checkout, tree, *select), rules)
            found = _sites(planned(ROOT, tree, *select, "--all-loaders"), rules)
            rewritten, still = _rewritten(then), _rewritten(found)
            before.update(site[0] for site in rewritten)
            now.update(site[0] for site in rewritten & still)
            new.update(site[0] for site in still - rewritten)
            for site in (one for one in then if one in rewritten - still):
                message = found.get(site, {"message": "no finding"})["message"]
                reason = message.partition("not rewritten: ")[2] or message
                declined[site[0]].append(f"{name}, `{site[1]}:{site[2]}`: {reason}")
    progress.end()
    rows = [[rule, before[rule], now[rule], new[rule], "<br>".join(declined[rule])] for rule in rules]
    rows.append(["all", before.total(), now.total(), new.total(), ""])
    text = "\n".join(table(["rule", f"sites at {revision}", "still rewritten", "new sites", "reasons"], rows))
    click.echo(text)
    if save:
        head = f"# Call sites that {revision} rewrites, and that this revision rewrites"
        trees = f"{len(names)} trees: {', '.join(names)}."
        ran = made_by({**conditions(), "command": f"python -m qa rewritten-sites {revision} FOLDER… --write"})
        write(QA_RESULTS, "rewritten-sites", f"{head}\n\n{text}\n\n{trees}\n\n{ran}.\n")
