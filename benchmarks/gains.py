"""`make bench-gains`: count the gains that chirp-migrate predicts for the loaders of packages from PyPI.

A gain is the improvement that the migration of a loader brings. The benchmark plans the migration of each source
distribution, but does not apply the plan and does not measure times. For each distribution, the table has the number of
loaders, of loaders with each kind of gain, of hunks and of unchanged loaders. The table also lists requirements of the
distribution that the runtime `chirpid_patch` does not support.

`--sample 40` chooses random loaders from `gains.json`. A person read the code of loaders chosen with several seeds, and
judged their gain. `gains_judged.json` has these judgements. The page shows how often chirp-migrate and the judgements
agree.

The benchmark writes `gains.json` and `gains.md` to `benchmarks/results/`.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
from codemod_bench.packages import MORE_PACKAGES, PACKAGES, Package, Unavailable, cache_option, fetch, unpack
from harness import RESULTS, TOOL, Progress, conditions, output_option, page, write

from chirp_migrate.additions.requirement_pins import version_conflicts
from chirp_migrate.plans.plan import GainKind

#: Largest number of loaders of one package in a sample.
_MOST_OF_ONE = 4
_JUDGEMENTS = RESULTS / "gains_judged.json"
_KINDS = tuple(kind.value for kind in GainKind)


def recorded_gains(folder: Path) -> list[dict[str, Any]]:
    """Return the results of an earlier run, for each package.

    Raises:
        click.UsageError: there was no run on this machine.
    """
    recorded = folder / "gains.json"
    if not recorded.is_file():
        raise click.UsageError(f"{recorded} does not exist: run `make bench-gains` first.")
    rows: list[dict[str, Any]] = json.loads(recorded.read_text(encoding="utf-8"))["packages"]
    return rows


def _plan(root: Path, target: Path) -> dict[str, Any]:
    """Return the plan for a tree of files, as a document."""
    plan = [*TOOL, "plan", "--jobs", "1", "--no-scaffold", "-o", str(target), "-q", str(root)]
    subprocess.run(plan, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return document


def _measured(package: Package, cache: Path) -> dict[str, Any]:
    """Return the loaders and gains of one package."""
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(fetch(package, cache), Path(folder) / "source")
        document = _plan(root, Path(folder) / "plan.json")
        loaders = [one for one in document["findings"] if one["rule"] == "CHP001" and one["gain"] is not None]
        kinds = Counter(one["gain"]["kind"] for one in loaders)
        return {
            "package": str(package),
            "loaders": len(loaders),
            **{kind: kinds[kind] for kind in _KINDS},
            "hunks": sum(len(file.get("hunks", ())) for file in document["files"]),
            "unchanged": sum(one["status"] == "unchanged" for one in document["findings"]),
            "pins": version_conflicts(root, root),
            "sites": [
                {"place": f"{one['path']}:{one['line']}", "kind": one["gain"]["kind"], "why": one["gain"]["why"]}
                for one in loaders
            ],
        }


def _sample(rows: list[dict[str, Any]], number: int, seed: int) -> list[dict[str, str]]:
    """Return random loaders of all packages, with a limited number for each package."""
    draw = random.Random(seed)
    every = [
        {"package": row["package"], **site}
        for row in rows
        for site in draw.sample(row["sites"], min(_MOST_OF_ONE, len(row["sites"])))
    ]
    return draw.sample(every, min(number, len(every)))


def _judged(rows: list[dict[str, Any]]) -> list[str]:
    """Return lines on the agreement of the tool with the judgements of a person, for each sample."""
    samples = json.loads(_JUDGEMENTS.read_text(encoding="utf-8"))["samples"] if _JUDGEMENTS.exists() else []
    kinds = {(row["package"], site["place"]): site["kind"] for row in rows for site in row["sites"]}
    lines = [line for sample in samples for line in _judged_sample(sample, kinds)]
    return lines[1:] or ["No person has judged these loaders."]


def _judged_sample(sample: dict[str, Any], kinds: dict[tuple[str, str], str]) -> list[str]:
    """Return the lines of one sample; empty if the run has none of its loaders."""
    pairs = [(one, kinds.get((one["package"], one["place"]))) for one in sample["loaders"]]
    found = [(one, kind) for one, kind in pairs if kind is not None]
    if not found:
        return []
    alike = sum(kind == one["judged"] for one, kind in found)
    missing = f" Loaders of the sample that this run lacks: {len(pairs) - len(found)}." * (len(found) < len(pairs))
    wrong = [
        f"* {one['package']} {one['place']}: {kind}, judged {one['judged']}: {one.get('why', '')}"
        for one, kind in found
        if kind != one["judged"]
    ]
    cautious = sum(
        kind == GainKind.AT_RUN_TIME.value and one["judged"] == GainKind.NOTHING.value for one, kind in found
    )
    return [
        "",
        f"For {alike} of {len(found)} loaders ({alike / len(found):.0%}), the gain is the gain that a person found in",
        f"the code. `--sample {len(pairs)} --seed {sample['seed']}` chose the loaders at random.{missing}",
        f"Loaders that differ: {len(wrong)}. Of these, {cautious} gain nothing, and were left to run time.",
        *(["", *wrong] if wrong else []),
    ]


def _page(rows: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    counted = ("loaders", *_KINDS, "hunks", "unchanged")
    body = [[row["package"], *(row[key] for key in counted), len(row["pins"])] for row in rows]
    body.append(["all", *(sum(row[key] for row in rows) for key in counted), sum(len(row["pins"]) for row in rows)])
    pins = [f"* {row['package']}: {pin}" for row in rows for pin in row["pins"]]
    header = ["package", *(name.replace("-", " ") for name in counted), "pins"]
    return page("gains", settings=settings, header=header, rows=body, judged=_judged(rows), pins=pins)


@click.command()
@cache_option
@click.option("--only", multiple=True, help="Plan only this package; keep all other results.")
@click.option("--sample", type=int, help="Only print this number of random loaders from gains.json.")
@click.option("--seed", default=40, show_default=True, help="Seed of the random choice.")
@output_option
def main(cache: Path, only: tuple[str, ...], sample: int | None, seed: int, output: Path) -> None:
    """Count the gains of the loaders of packages."""
    if sample is not None:
        for one in _sample(recorded_gains(output), sample, seed):
            click.echo("\t".join(one.values()))
        return
    progress = Progress()
    packages, settings = (*PACKAGES, *MORE_PACKAGES), conditions(threads=1)
    known = {row["package"]: row for row in recorded_gains(output)} if only else {}
    for package in packages:
        if only and package.name not in only:
            continue
        progress.step(package.name)
        try:
            row = _measured(package, cache)
        except Unavailable as error:
            click.echo(str(error), err=True)
            continue
        known[row["package"]] = row
        rows = [known[str(one)] for one in packages if str(one) in known]
        write(output, "gains", _page(rows, settings), {"settings": settings, "packages": rows})
    progress.end()


if __name__ == "__main__":
    main()
