"""`make bench-validity`: compare the saving of training time that `verify` predicts with the saving of long trainings.

The benchmark migrates a copy of the fixture backend (an example project), and verifies it with the default settings.
The option `--own-epochs` of `verify` is the number of epochs of the long trainings. Then some entry points (training
functions) of both versions train for this number of epochs. Each training runs in a separate process, and is timed from
the call of the training function to its return. The benchmark writes `verify-validity.json` and `verify-validity.md`.
docs/verify.md has the same table.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click
from harness import (
    FIXTURE,
    ROOT,
    Goal,
    check_option,
    conditions,
    end,
    made_by,
    migrated_copy,
    output_option,
    run_tool,
    saved,
    table,
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
@click.option("--alone", is_flag=True, help="Verify only these entry points.")
@output_option
@check_option
def main(
    entries: tuple[str, ...],
    epochs: int,
    samples: int,
    alone: bool,
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
        options = ["-k", " or ".join(f"'{label}'" for label in sorted(known))] if alone else []
        _, verified = run_tool("verify", trees["after"], "--own-epochs", str(epochs), *options)
        threads = verified["machine"]["threads"]
        long: dict[str, dict[str, float]] = {label: {} for label in sorted(known)}
        for label, taken in long.items():
            for side, tree in trees.items():
                taken[side] = seconds(tree, label, samples, epochs, threads)
                click.echo(f"{label} {side}: {taken[side]:.1f} s", err=True)
    goals, rows = [], []
    for label, taken in long.items():
        percent = 100 * (1 - taken["after"] / taken["before"])
        ratio = verified["ratios"].get(label)
        goals.append(Goal(label, "inside the interval, or within 3 points", f"{percent:.0f} %", _holds(ratio, percent)))
        holds = {True: "yes", False: "no", None: "not timed"}[goals[-1].holds]
        times = [f"{taken[side]:.1f} s" for side in trees]
        rows.append([label, saved(ratio, missing="-"), *times, f"{percent:.0f} %", holds])
    settings = {**conditions(threads), "epochs": epochs, "samples": samples}
    sizes = verified["workload"]
    lines = [
        "# The predicted saving, and the saving of long trainings",
        "",
        f"`verify` predicted the saving for {epochs} epochs from {'these' if alone else 'all'} entry points with its "
        f"default settings ({sizes['samples']} samples in batches of {sizes['batch_size']}). The measured saving is "
        f"the saving of whole trainings of {epochs} epochs with {samples} samples. "
        "Each version trained once.",
        "",
        *table(["entry point", "predicted", "before", "after", "measured", "holds"], rows),
        "",
        f"{made_by(settings)}.",
    ]
    write(output, "verify-validity", "\n".join(lines) + "\n", {"settings": settings, "long": long, "verify": verified})
    end(goals, check)


def _holds(ratio: dict[str, float] | None, percent: float) -> bool | None:
    if ratio is None:
        return None
    low, predicted, high = (100 * (1 - ratio[name]) for name in ("high", "value", "low"))
    return low <= percent <= high or abs(predicted - percent) <= WITHIN_POINTS


if __name__ == "__main__":
    main()
