"""`make bench-validity`: compare the saving of training time that `verify` predicts with the saving of long trainings.

The benchmark migrates a copy of the fixture backend (an example project), and verifies it with the default settings.
The option `--own-epochs` of `verify` is the number of epochs of the long trainings. Then some entry points (training
functions) of both versions train for this number of epochs. Each training runs in a separate process, and is timed from
the call of the training function to its return. The benchmark writes `verify-validity.json` and `verify-validity.md`.
docs/verify.md has the same table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from harness import (
    FIXTURE,
    ROOT,
    TOOL,
    Goal,
    check_option,
    conditions,
    end,
    made_by,
    migrated_copy,
    output_option,
    table,
    turns,
    write,
)

from chirp_migrate.training.workload.choosing import select_entry_points
from chirp_migrate.training.workload.entry_points import find_entry_points

ENTRY_POINTS = (
    "training_utils.fast_single_fold_training_with_augmentation",
    "util_backup.single_fold_training_with_predefined_split",
    "training_engine.TrainingEngine.run_single_fold_predefined",
)
WITHIN_POINTS = 3.0
_SIDES = ("before", "after")

_TRAIN = """
import sys, time
from dataclasses import replace
from pathlib import Path
sys.path.append({root!r})
import torch
from chirp_migrate.training.process.imports import enter_project_copy
from chirp_migrate.training.workload.calls import data_for_entry_points, load_model, prepare_call, seed_everything
from chirp_migrate.training.workload.choosing import select_entry_points
from chirp_migrate.training.workload.entry_points import WorkloadSizes, find_entry_points
if __name__ == "__main__":
    enter_project_copy(Path({tree!r}))
    torch.set_num_threads({threads})
    found = select_entry_points(find_entry_points(Path()), {label!r})
    sizes = WorkloadSizes(samples={samples}, epochs={epochs})
    data = data_for_entry_points(found.entry_points, sizes)
    call = prepare_call(found.entry_points[0], load_model(found.model), data, sizes)
    seed_everything(sizes.seed)
    began = time.perf_counter()
    call()
    sys.stderr.write("seconds " + repr(time.perf_counter() - began))
"""


def seconds(tree: Path, label: str, samples: int, epochs: int, threads: int) -> float:
    """Train to the end in a new process, and return the seconds of the call."""
    program = _TRAIN.format(
        root=str(ROOT), tree=str(tree), label=f"'{label}'", samples=samples, epochs=epochs, threads=threads
    )
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "long_training.py"
        script.write_text(program, encoding="utf-8")
        done = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise click.ClickException(f"{label} failed in {tree}:\n{done.stderr[-2000:]}")
    return float(done.stderr.rpartition("seconds ")[2])


@click.command()
@click.option("--entry", "entries", multiple=True, default=ENTRY_POINTS, help="Entry point (may be repeated).")
@click.option("--epochs", type=click.IntRange(min=2), default=40, show_default=True, help="Epochs per long training.")
@click.option("--samples", type=click.IntRange(min=48), default=1000, show_default=True, help="Samples per epoch.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Trainings per version.")
@click.option("--alone", is_flag=True, help="Verify only these entry points.")
@click.option("--own-samples", type=click.IntRange(min=48), help="Number of samples for verify.  [default: as verify]")
@output_option
@check_option
def main(
    entries: tuple[str, ...],
    epochs: int,
    samples: int,
    repeats: int,
    alone: bool,
    own_samples: int | None,
    output: Path,
    check: bool,
) -> None:
    """Predict the saving of long trainings, then run these trainings to the end."""
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": FIXTURE, "after": migrated_copy(FIXTURE, Path(folder))}
        known = {
            one.label
            for entry in entries
            for one in select_entry_points(find_entry_points(FIXTURE), f"'{entry}'").entry_points
        }
        report = Path(folder) / "verify.json"
        command = [*TOOL, "verify", str(trees["after"]), "--own-epochs", str(epochs), "--json", str(report)]
        command += ["-k", " or ".join(f"'{label}'" for label in sorted(known))] if alone else []
        command += [] if own_samples is None else ["--samples", str(own_samples)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        verified = json.loads(report.read_text(encoding="utf-8"))
        threads = verified["machine"]["threads"]
        long: dict[str, dict[str, list[float]]] = {label: {side: [] for side in _SIDES} for label in sorted(known)}
        for label, taken in long.items():
            for _, side in turns(_SIDES, repeats):
                taken[side].append(seconds(trees[side], label, samples, epochs, threads))
                click.echo(f"{label} {side}: {taken[side][-1]:.1f} s", err=True)
    goals, rows = [], []
    for label, taken in long.items():
        saved = 100 * (1 - sum(taken["after"]) / sum(taken["before"]))
        ratio = verified["ratios"].get(label)
        rows.append(_row(label, ratio, taken, saved))
        goals.append(Goal(label, "inside the interval, or within 3 points", f"{saved:.0f} %", _holds(ratio, saved)))
    settings = {**conditions(threads), "epochs": epochs, "samples": samples, "repeats": repeats}
    sizes = verified["workload"]
    lines = [
        "# The predicted saving, and the saving of long trainings",
        "",
        f"`verify` predicted the saving for {epochs} epochs from {'these' if alone else 'all'} entry points with its "
        f"default settings ({sizes['samples']} samples in batches of {sizes['batch_size']}). The measured saving is "
        f"the saving of whole trainings of {epochs} epochs with {samples} samples. Trainings per version: "
        f"{repeats}.",
        "",
        *table(["entry point", "predicted", "before", "after", "measured", "holds"], rows),
        "",
        f"{made_by(settings)}.",
    ]
    write(output, "verify-validity", "\n".join(lines) + "\n", {"settings": settings, "long": long, "verify": verified})
    end(goals, check)


def _row(label: str, ratio: dict[str, Any] | None, taken: dict[str, list[float]], saved: float) -> list[str]:
    times = [f"{sum(taken[side]) / len(taken[side]):.1f} s" for side in _SIDES]
    holds = {True: "yes", False: "no", None: "not timed"}[_holds(ratio, saved)]
    if ratio is None:
        return [label, "-", *times, f"{saved:.0f} %", holds]
    low, high = 100 * (1 - ratio["high"]), 100 * (1 - ratio["low"])
    return [label, f"{100 * (1 - ratio['value']):.0f} % [{low:.0f}, {high:.0f}]", *times, f"{saved:.0f} %", holds]


def _holds(ratio: dict[str, Any] | None, saved: float) -> bool | None:
    if ratio is None:
        return None
    low, predicted, high = (100 * (1 - float(ratio[name])) for name in ("high", "value", "low"))
    return low <= saved <= high or abs(predicted - saved) <= WITHIN_POINTS


if __name__ == "__main__":
    main()
