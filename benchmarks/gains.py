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
from codemod_bench.packages import PACKAGES, Package, Unavailable, default_cache, fetch, unpack
from harness import RESULTS, TOOL, Progress, conditions, made_by, output_option, table, write

from chirp_migrate.additions.requirement_pins import version_conflicts
from chirp_migrate.plans.plan import GainKind

#: Packages with training code, in addition to the packages of the survey.
_MORE: tuple[Package, ...] = (
    Package(
        "chemprop",
        "2.3.1",
        "chemprop-2.3.1.tar.gz",
        "b9ddcf1b4d6657b4baddcbfd563855e00bd7d7b8baae2c460f9ef181a56edae0",
    ),
    Package(
        "deepctr-torch",
        "0.3.0",
        "deepctr_torch-0.3.0.tar.gz",
        "3ba2d2ea8d59eb196b66d164599102983e60b4b48283b5ba600c867092fb0176",
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
        "pyod",
        "3.6.7",
        "pyod-3.6.7.tar.gz",
        "26e189ee93b85e6f11a4155674e77818fed3a25d96b6ae613a885b143d624e12",
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
        "salesforce-merlion",
        "2.0.4",
        "salesforce_merlion-2.0.4.tar.gz",
        "adc939ec07d95d64a97e6019c5e709dbf03d2eb7b7adc28d80ebfe8a5a84d2a8",
    ),
    Package(
        "sbi",
        "0.27.0",
        "sbi-0.27.0.tar.gz",
        "3e59c832d37612bcd308c24207706e7f47250e7471fd15609f08f91e31b0f17c",
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
    Package(
        "braindecode",
        "1.8.1",
        "braindecode-1.8.1.tar.gz",
        "9267480d04698163e4310104680a62a8d491fcffe3fbd0a8b7006f5d01b3e8b9",
    ),
    Package(
        "cleanlab",
        "2.9.0",
        "cleanlab-2.9.0.tar.gz",
        "abe25fe0c772ced8c4b36a94e0de71726db00802224b7fb7bee06db6ff95eb4e",
    ),
    Package(
        "pypots",
        "1.5",
        "pypots-1.5.tar.gz",
        "e22e8bb9949ada1132984634d00ba35003180b1cafb99cdcc19cfe659f80f598",
    ),
    Package(
        "pytorch-tabular",
        "1.2.0",
        "pytorch_tabular-1.2.0.tar.gz",
        "1b96b576eb3de443840b313d0b298293eaf83dcfdbba53ed8974b76d1351b821",
    ),
    Package(
        "recbole",
        "1.2.1",
        "recbole-1.2.1.tar.gz",
        "f00a94be7bf1c62d7cb5ac52bdd7c6355a499b1eb7e05d652f110fffa9a9d0a8",
    ),
    Package(
        "sentence-transformers",
        "6.2.0",
        "sentence_transformers-6.2.0.tar.gz",
        "1e3cd8796ab7bcad4cfa2f51e2083d8b37b15d6b68e6fa6b91a147c67380574d",
    ),
    Package(
        "setfit",
        "1.2.0",
        "setfit-1.2.0.tar.gz",
        "ed87e37cb7a35b04dac398c55e2dc9642a4b098d64cdf4b91a91d55dbae1de43",
    ),
    Package(
        "simpletransformers",
        "0.70.8",
        "simpletransformers-0.70.8.tar.gz",
        "a4287ee20a4138917715dc9f6d535fc51e57bb21d17ff60fb11fab0370db67bc",
    ),
    Package(
        "torchtuples",
        "0.2.2",
        "torchtuples-0.2.2.tar.gz",
        "e0c7fe69977eb594fd9e81015821bb62c849be94d378bd072bdcb08cd68fffc3",
    ),
    Package(
        "tsai",
        "1.0.1",
        "tsai-1.0.1.tar.gz",
        "7ef31c7de6bf5ff551a5e3f0fbae8ee92a2cc550b1381e82485be7cd724bc012",
    ),
)

#: Largest number of loaders of one package in a sample.
_MOST_OF_ONE = 4
_JUDGEMENTS = RESULTS / "gains_judged.json"
_KINDS = tuple(kind.value for kind in GainKind)


def packages_by_name() -> dict[str, Package]:
    """Return the packages of the survey, and other packages with training code, by name."""
    return {package.name: package for package in (*PACKAGES, *_MORE)}


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
            "package": f"{package.name} {package.version}",
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
    head = ["package", "loaders", *(kind.replace("-", " ") for kind in _KINDS), "hunks", "unchanged", "pins"]
    body = [
        [row["package"], *(row[key] for key in ("loaders", *_KINDS, "hunks", "unchanged")), len(row["pins"])]
        for row in rows
    ]
    totals = ["all", *(sum(row[key] for row in rows) for key in ("loaders", *_KINDS, "hunks", "unchanged"))]
    pins = [f"* {row['package']}: {pin}" for row in rows for pin in row["pins"]]
    return "\n".join(
        [
            "# Gains of the loaders of packages from PyPI",
            "",
            made_by(settings),
            "",
            "The benchmark plans source distributions without their tests, with the default options. *Loaders* are",
            "calls that rule CHP001 can rewrite. *Hunks* are the hunks of all rules. *Unchanged* findings, such as",
            "loaders, lambdas and copies, are only rewritten with `--all-loaders`. *Pins* are version pins that the",
            "runtime does not support. The benchmark measures no times.",
            "[apply.md](../../docs/apply.md#which-loaders-are-rewritten) describes the gains.",
            "",
            *table(head, [*body, [*totals, sum(len(row["pins"]) for row in rows)]]),
            "",
            "## Comparison with the judgements of a person",
            "",
            *_judged(rows),
            "",
            "## Pins that the runtime does not support",
            "",
            *(pins or ["None."]),
            "",
        ]
    )


@click.command()
@click.option("--cache", type=click.Path(path_type=Path), default=default_cache, help="Folder for downloads.")
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
    packages, settings = (*PACKAGES, *_MORE), conditions(threads=1)
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
        names = [f"{one.name} {one.version}" for one in packages]
        rows = [known[name] for name in names if name in known]
        write(output, "gains", _page(rows, settings), {"settings": settings, "packages": rows})
    progress.end()


if __name__ == "__main__":
    main()
