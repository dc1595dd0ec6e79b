"""`make bench-scripts`: run `doctor`, `apply` and `verify` on training scripts of other people.

Each script is an example in a source distribution from PyPI, whose version and content are pinned. `doctor DIR --
python SCRIPT` examines a copy of the script's folder, `apply` migrates the copy, and `verify DIR -- python SCRIPT`
verifies the copy. `verify` needs no additional file for these scripts. The benchmark generates the data that a script
would download: files with names, and images from a replacement of torchvision's datasets. The benchmark installs other
packages that a script imports into a separate folder, without their dependencies. The benchmark writes
`verify-scripts.md`. The exit code is 0 if no migrated script is slower, trains differently, or is broken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from codemod_bench.checks import changed, snapshot
from codemod_bench.packages import PACKAGES, SCRIPT_PACKAGES, cache_option, chosen, fetch, unpack
from harness import (
    ROOT,
    TOOL,
    Goal,
    Progress,
    check_option,
    conditions,
    end,
    made_by,
    output_option,
    run_tool,
    saved,
    table,
    write,
)

from chirp_migrate.exit_codes import ExitCode

STAND_IN = ROOT / "benchmarks" / "scripts_bench"
FINE = (ExitCode.OK, ExitCode.NOT_SHOWN, ExitCode.MODEL_BOUND)


def write_names(folder: Path) -> None:
    """Write a file of names for each language, as in PyTorch's tutorial on classifying names."""
    generator = np.random.default_rng(0)
    (folder / "names").mkdir()
    for language in ("Czech", "English", "Greek", "Irish", "Polish", "Spanish"):
        lengths = generator.integers(3, 12, 125)
        names = ("".join(generator.choice(list("abcdefghiklmnoprstuvwyz"), length)) for length in lengths)
        (folder / "names" / f"{language}.txt").write_text("\n".join(names).title() + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Script:
    """A script and its command line.

    Attributes:
        package: source distribution that contains the script as an example.
        loop: framework of the training loop.
        folder: folder of the project in the source distribution.
        words: arguments after ``python``: the script and its options.
        environment: variables of the environment; ``MADE_UP_SAMPLES`` is the number of generated images (default: 640).
        write_data: function that writes sample files into a folder; None for scripts that read no such files.
    """

    package: str
    loop: str
    folder: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    write_data: Callable[[Path], None] | None = None


_CPU = ("--device", "cpu", "--disable-dp")
# The plots of this script need 100 batches in the first epoch, and the script generates 256 images.
_SMALL = ("--batch-size", "2", "--g-filters", "8", "--d-filters", "8")
_GAN = ("--dataset", "fake", "--dataroot", ".", "--output-dir", "out", *_SMALL)
_NAMES = ("-b", "64", "--epochs", "50", "--data-root", "names")
SCRIPTS = (
    Script("opacus", "plain", "examples", ("char-lstm-classification.py", *_CPU, *_NAMES), write_data=write_names),
    Script("opacus", "plain", "examples", ("cifar10.py", *_CPU, "--batch-size", "64", "--data-root", ".")),
    Script("opacus", "plain", "examples", ("mnist.py", *_CPU, "-n", "50", "--data-root", ".")),
    # This script splits 60,000 images. PT_ACC_LIMIT_BATCHES is a variable of the framework for short epochs.
    Script(
        *("pytorch-accelerated", "accelerate", ".", ("examples/core/train_mnist.py",)),
        {"MADE_UP_SAMPLES": "60000", "PT_ACC_LIMIT_BATCHES": "20"},
    ),
    Script("pytorch-ignite", "ignite", "examples/gan", ("dcgan.py", *_GAN)),
    Script("pytorch-ignite", "ignite", "examples/mnist", ("mnist.py", "--epochs", "50")),
    Script("pytorch-ignite", "ignite", "examples/mnist", ("mnist_save_resume_engine.py", "--epochs", "50")),
    Script("pytorch-forecasting", "Lightning", ".", ("examples/nbeats.py",)),
)

INSTALLED = (
    *("pytorch-ignite==0.5.5", "opacus==1.6.0", "lightning==2.6.6", "torchmetrics", "lightning-utilities"),
    *("scikit-base", "torchvision==0.16.2", "requests", "urllib3", "certifi", "charset-normalizer", "idna"),
    *("tqdm", "tensorboardX", "protobuf", "packaging"),
)


@dataclass(frozen=True)
class Outcome:
    """The result of a script.

    Attributes:
        script: the script.
        problems: the problems that doctor found; None if doctor failed.
        changed: number of files that the migration changed.
        exit_code: exit code of verify.
        seconds: seconds of verify.
        report: the JSON report of verify; empty if verify wrote none.
    """

    script: Script
    problems: list[str] | None
    changed: int
    exit_code: int
    seconds: float
    report: dict[str, Any]


def verified(script: Script, cache: Path, site: Path, options: tuple[str, ...], scratch: Path) -> Outcome:
    """Examine a copy of the script's folder, migrate it, and verify it."""
    [package] = chosen([script.package], (*PACKAGES, *SCRIPT_PACKAGES))
    source = unpack(fetch(package, cache), scratch / "source") / script.folder
    if script.write_data is not None:
        script.write_data(source)
    # Tests that replace a package's DataLoader are a reason not to rewrite its loaders.
    project = shutil.copytree(source, scratch / "project", ignore=shutil.ignore_patterns("test", "tests"))
    path = os.pathsep.join([str(STAND_IN), str(site)])
    environment = {**os.environ, "PYTHONPATH": path, "MADE_UP_SAMPLES": "640", **script.environment}

    def run(command: str, *options: str) -> tuple[int, dict[str, Any]]:
        return run_tool(command, project, *options, "--", "python", *script.words, env=environment)

    _, examined = run("doctor")
    problems = [one["check"] for one in examined["problems"]] if examined else None
    subprocess.run([*TOOL, "apply", str(project), "--all-loaders", "--no-scaffold"], check=True, capture_output=True)
    count = len({*changed(snapshot(source), snapshot(project))} & {*snapshot(project)})
    began = time.monotonic()
    exit_code, report = run("verify", *options)
    return Outcome(script, problems, count, exit_code, time.monotonic() - began, report)


@click.command()
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.option("--only", default="", metavar="TEXT", help="Only scripts whose package or command line contains TEXT.")
@cache_option
@output_option
@check_option
def main(options: tuple[str, ...], only: str, cache: Path, output: Path, check: bool) -> None:
    """Verify every script; OPTIONS (after --) are passed to verify."""
    progress = Progress()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *INSTALLED]
        subprocess.run(pip, check=True, capture_output=True)
        for number, script in enumerate(one for one in SCRIPTS if only in f"{one.package} {' '.join(one.words)}"):
            progress.step(f"{script.package}: {' '.join(script.words)}")
            outcomes.append(verified(script, cache, site, options, Path(folder) / str(number)))
            click.echo(" | ".join(_row(outcomes[-1])), err=True)
    progress.end()
    settings = conditions(next((one.report["machine"]["threads"] for one in outcomes if one.report), 1))
    results = ["changed files", "batches compared", "epochs timed", "verdict", "saved", "took"]
    lines = [
        "# Training scripts of other people",
        "",
        "The scripts are examples in source distributions from PyPI. `doctor DIR -- python SCRIPT` examines a script, "
        "`apply --all-loaders` migrates it, and `verify DIR -- python SCRIPT` verifies it without additional files. "
        "The column *doctor* has the number of problems of each check. The images and names are generated.",
        "",
        *table(["script", "loop", "doctor", *results], [_row(one) for one in outcomes], left=3),
        "",
        f"{made_by(settings)}.",
    ]
    write(output, "verify-scripts", "\n".join(lines) + "\n")
    goals = [Goal(" ".join(one.script.words), "no difference", "", one.exit_code in FINE) for one in outcomes]
    end(goals, check)


def _row(one: Outcome) -> list[str]:
    name = f"{one.script.package}: `{one.script.words[0]}`"
    found = one.report
    batches = sum(len(each["sizes"]) for of in found.get("passes", {}).get("before", {}).values() for each in of)
    visits = [each["visits"]["before"].values() for each in found.get("rounds", {}).get("made", [])]
    epochs = sum(len(visit["epochs_s"]) for of in visits for visit in of)
    verdict = found.get("verdict", f"exit code {one.exit_code}")
    doctor = "failed"
    if one.problems is not None:
        doctor = ", ".join(f"{number} {check}" for check, number in Counter(one.problems).items()) or "none"
    counts = [str(one.changed), str(batches), str(epochs)]
    return [
        name,
        one.script.loop,
        doctor,
        *counts,
        verdict,
        saved(found.get("ratio"), missing="-"),
        f"{one.seconds:.0f} s",
    ]


if __name__ == "__main__":
    main()
