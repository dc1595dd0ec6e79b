"""`make bench-gains`: what the migration of the loaders of packages from PyPI buys, by the judgement of the tool.

Each source distribution is planned twice, by default and with `--all-loaders`, and nothing is written to it. The table
counts the loaders, what each gains, the hunks of both plans, and pins that contradict the runtime. Nothing is timed.

Writes `gains.json` and `gains.md` to `benchmarks/results/`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click
from codemod_bench.packages import PACKAGES, Package, Unavailable, default_cache, fetch, unpack
from harness import TOOL, Progress, conditions, made_by, output_option, table, write

from chirp_migrate.additions.pins import contradictions
from chirp_migrate.plans.plan import GainKind

#: Packages with training code beside those of the survey.
_MORE: tuple[Package, ...] = (
    Package(
        "chemprop",
        "2.3.1",
        "chemprop-2.3.1.tar.gz",
        "b9ddcf1b4d6657b4baddcbfd563855e00bd7d7b8baae2c460f9ef181a56edae0",
    ),
    Package(
        "deepforest",
        "2.1.0",
        "deepforest-2.1.0.tar.gz",
        "fa224f3ae3c099876296f3b821de759a3be780162a19d49b42b313e0fc328d45",
    ),
    Package(
        "demucs",
        "4.1.0",
        "demucs-4.1.0.tar.gz",
        "d94c4f7dac886595b66af405c0fd1756fa00c297183f1cf021fd2eeedeeb67b2",
    ),
    Package(
        "kraken",
        "7.1.1",
        "kraken-7.1.1.tar.gz",
        "489079856742ad308a069321a62f89c4eecb008ef4529798a19ff8799ae875d5",
    ),
    Package(
        "learn2learn",
        "0.2.0",
        "learn2learn-0.2.0.tar.gz",
        "69f1d7cb0d0a6be7a2c6ad8e83e2ebbe70fb05e51d61e45e63078b40c75ea419",
    ),
    Package(
        "neuralforecast",
        "3.3.0",
        "neuralforecast-3.3.0.tar.gz",
        "73fbb9b8ba194c6f06e64d2f137855c98616af7f2488c7107abb05516a22ebe7",
    ),
    Package(
        "nnunetv2",
        "2.8.1",
        "nnunetv2-2.8.1.tar.gz",
        "63646638f1bbbaaa9f2a7f92dda44b992581435e45556529f0d8190f6c80dfcc",
    ),
    Package(
        "open-clip-torch",
        "3.3.0",
        "open_clip_torch-3.3.0.tar.gz",
        "904b1a9f909df8281bb3de60ab95491cd2994a509177ea4f9d6292a84fe24d6d",
    ),
    Package(
        "openunmix",
        "1.3.0",
        "openunmix-1.3.0.tar.gz",
        "cc9245ce728700f5d0b72c67f01be4162777e617cdc47f9b035963afac180fc8",
    ),
    Package(
        "pytorch-metric-learning",
        "2.9.0",
        "pytorch-metric-learning-2.9.0.tar.gz",
        "27a626caf5e2876a0fd666605a78cb67ef7597e25d7a68c18053dd503830701f",
    ),
    Package(
        "pytorch-tabnet",
        "4.1.0",
        "pytorch_tabnet-4.1.0.tar.gz",
        "18887b993a8bf86ec05a576b5cf93f09e08b778cd9f418c5b254b6566df673a5",
    ),
    Package(
        "speechbrain",
        "1.1.2",
        "speechbrain-1.1.2.tar.gz",
        "a49328b61f6e6caa0e01ab4e32bc15b564114953e30718b1379d2e1d764e426a",
    ),
    Package(
        "torchreid",
        "0.2.5",
        "torchreid-0.2.5.tar.gz",
        "bc1055c6fb8444968798708dd13fdad00148e9d7cf3cb18cf52f4b949857fe08",
    ),
)
_KINDS = tuple(kind.value for kind in GainKind)


def _plan(root: Path, target: Path, *options: str) -> dict[str, Any]:
    """The plan of a tree, as a document."""
    plan = [*TOOL, "plan", "--no-scaffold", *options, "-o", str(target), "-q", str(root)]
    subprocess.run(plan, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    return document


def _hunks(document: dict[str, Any]) -> int:
    return sum(len(file.get("hunks", ())) for file in document["files"])


def _measured(package: Package, cache: Path) -> dict[str, Any]:
    """What is found in one package."""
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(fetch(package, cache), Path(folder) / "source")
        by_gain, every = (_plan(root, Path(folder) / f"{len(o)}.json", *o) for o in ((), ("--all-loaders",)))
        loaders = [one for one in by_gain["findings"] if one["rule"] == "CHP001" and one["gain"] is not None]
        kinds = Counter(one["gain"]["kind"] for one in loaders)
        return {
            "package": f"{package.name} {package.version}",
            "loaders": len(loaders),
            **{kind: kinds[kind] for kind in _KINDS},
            "hunks": _hunks(by_gain),
            "hunks_all_loaders": _hunks(every),
            "pins": contradictions(root, root),
        }


def _page(rows: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    head = ["package", "loaders", *(kind.replace("-", " ") for kind in _KINDS), "hunks", "with --all-loaders", "pins"]
    body = [
        [row["package"], *(row[key] for key in ("loaders", *_KINDS, "hunks", "hunks_all_loaders")), len(row["pins"])]
        for row in rows
    ]
    totals = ["all", *(sum(row[key] for row in rows) for key in ("loaders", *_KINDS, "hunks", "hunks_all_loaders"))]
    pins = [f"* {row['package']}: {pin}" for row in rows for pin in row["pins"]]
    return "\n".join(
        [
            "# What loaders of packages from PyPI gain",
            "",
            made_by(settings),
            "",
            "Source distributions without their tests, planned by default and with `--all-loaders`. *Loaders* are",
            "calls that CHP001 can rewrite, *hunks* those of all rules, and *pins* those that contradict the runtime.",
            "[apply.md](../../docs/apply.md#which-loaders-are-rewritten) describes the gains. Nothing is timed.",
            "",
            *table(head, [*body, [*totals, sum(len(row["pins"]) for row in rows)]]),
            "",
            "## Pins that contradict the runtime",
            "",
            *(pins or ["None."]),
            "",
        ]
    )


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), default=default_cache, help="Folder of downloads.")
@click.option("--only", multiple=True, help="Names of packages.")
@output_option
def main(cache: Path, only: tuple[str, ...], output: Path) -> None:
    """Count what the loaders of packages gain."""
    progress = Progress()
    rows: list[dict[str, Any]] = []
    for package in (*PACKAGES, *_MORE):
        if only and package.name not in only:
            continue
        progress.step(package.name)
        try:
            rows.append(_measured(package, cache))
        except Unavailable as error:
            click.echo(str(error), err=True)
    progress.end()
    settings = conditions(threads=1)
    write(output, "gains", _page(rows, settings), {"settings": settings, "packages": rows})


if __name__ == "__main__":
    main()
