"""Compare the places that another revision of the tool rewrites with the places that this revision rewrites.

`python -m qa rewritten-sites REVISION [FOLDER…]` plans the migration of the packages of the survey, and of the given
folders. It makes one plan with the tool of REVISION, and one plan with the tool in this working tree (with
`--all-loaders`). The check compares the findings by rule, file, line and column. For each place that only REVISION
rewrites, the check lists the reason.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks.codemod_bench.packages import PACKAGES, Unavailable, default_cache, fetch, unpack
from benchmarks.harness import QA_RESULTS, ROOT, Progress, conditions, made_by, table, write
from qa.same_plans import planned

#: A site: rule, path, line and column.
_Site = tuple[str, str, int, int]


def _sites(plan: dict[str, Any], rules: tuple[str, ...]) -> dict[_Site, dict[str, Any]]:
    found = (one for one in plan["findings"] if one["rule"] in rules)
    return {(one["rule"], one["path"], one["line"], one["column"]): one for one in found}


def _trees(packages: tuple[str, ...], folders: tuple[Path, ...], scratch: Path) -> Iterator[tuple[str, Path]]:
    for package in (one for one in PACKAGES if not packages or one.name in packages):
        try:
            yield f"{package.name} {package.version}", unpack(fetch(package, default_cache()), scratch / package.name)
        except Unavailable as reason:
            click.echo(str(reason), err=True)
    yield from ((folder.name, folder) for folder in folders)


@click.command()
@click.argument("revision")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--package",
    "packages",
    multiple=True,
    type=click.Choice([one.name for one in PACKAGES]),
    help="Only this package. [all]",
)
@click.option("--rule", "rules", multiple=True, default=("CHP006", "CHP007", "CHP012"), show_default=True)
@click.option("--write", "save", is_flag=True, help="Write qa/results/rewritten-sites.md.")
def main(
    revision: str, folders: tuple[Path, ...], packages: tuple[str, ...], rules: tuple[str, ...], save: bool
) -> None:
    """Compare the sites that REVISION rewrites with the sites that this tree rewrites."""
    before: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    new: Counter[str] = Counter()
    declined: dict[str, list[str]] = defaultdict(list)
    progress, names = Progress(), []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        checkout.mkdir()
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive.stdout, check=True)
        for name, tree in _trees(packages, folders, Path(folder)):
            progress.step(name)
            names.append(name)
            select = ("--select", ",".join(rules))
            then = _sites(planned(checkout, tree, *select), rules)
            now = _sites(planned(ROOT, tree, *select, "--all-loaders"), rules)
            for site, finding in then.items():
                if finding["status"] == "rewrite":
                    rule = site[0]
                    before[rule] += 1
                    same = now.get(site, {"status": "", "message": "no finding"})
                    kept[rule] += same["status"] == "rewrite"
                    if same["status"] != "rewrite":
                        reason = same["message"].partition("not rewritten: ")[2] or same["message"]
                        declined[rule].append(f"{name}, `{site[1]}:{site[2]}`: {reason}")
            new.update(
                site[0]
                for site, finding in now.items()
                if finding["status"] == "rewrite" and then.get(site, {}).get("status") != "rewrite"
            )
    progress.end()
    rows = [[rule, before[rule], kept[rule], new[rule], "<br>".join(declined[rule])] for rule in rules]
    rows.append(["all", before.total(), kept.total(), new.total(), ""])
    lines = table(["rule", f"sites at {revision}", "still rewritten", "new sites", "reasons"], rows)
    text = "\n".join(lines)
    click.echo(text)
    if save:
        head = f"# Call sites that {revision} rewrites, and that this revision rewrites"
        trees = f"{len(names)} trees: {', '.join(names)}."
        ran = made_by({**conditions(), "command": f"python -m qa rewritten-sites {revision} FOLDER… --write"})
        write(QA_RESULTS, "rewritten-sites", f"{head}\n\n{text}\n\n{trees}\n\n{ran}.\n")
