"""Check whether the loader settings that `chirp-migrate tune` picks are as fast as the best settings.

Run: python benchmarks/tune.py [--quick]

The benchmark uses three kinds of samples: in memory, memory-mapped, and samples that take 5 ms of CPU time to decode.
For each kind, it repeats three steps several times. First, `tune` picks a configuration (a combination of settings).
Second, the benchmark measures every configuration equally often, to find the best configuration. Third, it measures the
pick and the best configuration again in pairs. A repeat fails if the whole interval of the ratio (samples per second of
the pick / of the best) is below 0.95. The benchmark prints a table, and writes raw values with --json. The exit code is
1 if a repeat failed.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from harness import Goal, conditions, end, interval_text, keep_busy, paired, ratio_ends, write_json
from loader_bench.per_sample import MappedSpectrograms
from torch.utils.data import Dataset, TensorDataset

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirp_migrate.training.process.background_load import BackgroundLoadWatch
from chirp_migrate.tune.measured_dataset import MeasuredDataset, prepare_dataset_measurement
from chirp_migrate.tune.plateau import pick_smallest_best
from chirp_migrate.tune.sweep import SettingsSweep, measure_settings, setting_combinations
from chirp_migrate.tune.tune_report import CandidateSettings, mean_rate
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.thresholds import TIED

SHAPE = (1, 224, 313)
WORKERS, PREFETCH, BATCH_SIZE = (0, 2, 4, 8), (2, 4), 32
DECODE_S = 0.005


class Decoded(Dataset[Any]):
    """Samples that take 5 ms of CPU time each, in Python."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        keep_busy(DECODE_S)
        return torch.full((1, 64, 64), float(index)), index % 31


def subjects(folder: Path) -> dict[str, MeasuredDataset]:
    """Return the datasets to load, by name."""
    features = torch.rand(512, *SHAPE, generator=torch.Generator().manual_seed(0))
    file = folder / "mapped.npy"
    np.save(file, features.numpy())
    labels = torch.arange(len(features)) % 31
    return {
        "in memory": prepare_dataset_measurement(TensorDataset(features, labels), BATCH_SIZE, uses_runtime=True),
        "memory-mapped": prepare_dataset_measurement(MappedSpectrograms(file, labels), BATCH_SIZE, uses_runtime=True),
        "decode-heavy (5 ms)": prepare_dataset_measurement(Decoded(), BATCH_SIZE, uses_runtime=True),
    }


def _rates(
    subject: MeasuredDataset, ways: list[CandidateSettings], rounds: int, slice_s: float
) -> dict[CandidateSettings, list[float]]:
    """Measure each configuration once in each round, and return its samples per second."""
    timed = {way: partial(measure_settings, subject, way, slice_s) for way in ways}
    return {way: [one.samples_per_second for one in found] for way, found in paired(timed, rounds, 0).items()}


def exhaustive_best(
    subject: MeasuredDataset, ways: list[CandidateSettings], rounds: int, slice_s: float
) -> CandidateSettings:
    """Return the fastest of all configurations. Every round measures each configuration once."""
    rates = _rates(subject, ways, rounds, slice_s)
    return max(ways, key=lambda way: mean_rate(rates[way]).value)


def compared(
    subject: MeasuredDataset, picked: CandidateSettings, best: CandidateSettings, pairs: int, slice_s: float
) -> Ratio | None:
    """Return rate of the pick / rate of the best, measured again in pairs; None if both are the same."""
    if picked == best:
        return None
    rates = _rates(subject, [picked, best], pairs, slice_s)
    return paired_ratio(rates[best], rates[picked])


@click.command(help=__doc__)
@click.option("--repeats", default=5, show_default=True, help="Repeats for each kind of samples.")
@click.option("--seconds", default=30.0, show_default=True, help="Time budget of tune in seconds.")
@click.option("--slice", "slice_s", default=0.7, show_default=True, help="Seconds of each other measurement.")
@click.option("--pairs", default=8, show_default=True, help="Pairs of measurements of pick and best.")
@click.option("--quick", is_flag=True, help="Two short repeats, to test the benchmark itself.")
@click.option("--only", default="", help="Only kinds of samples whose name contains TEXT.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write raw values to this file.")
def main(repeats: int, seconds: float, slice_s: float, pairs: int, quick: bool, only: str, target: Path | None) -> None:
    """Measure, print and judge."""
    if quick:
        repeats, seconds, slice_s, pairs = 2, 8.0, 0.2, 4
    results, goals = [], []
    threads = sorted({1, min(2, usable_cpus()), usable_cpus()})
    with tempfile.TemporaryDirectory() as folder:
        for name, subject in subjects(Path(folder)).items():
            if only not in name:
                continue
            ways = setting_combinations(WORKERS, PREFETCH, threads if name == "in memory" else (), BATCH_SIZE, None)
            for repeat in range(repeats):
                watch = BackgroundLoadWatch()
                with watch.watching():
                    chosen = pick_smallest_best(SettingsSweep(subject, ways, seconds, lambda _line: None).run())
                    assert chosen is not None
                    best = exhaustive_best(subject, ways, 3, slice_s)
                    ratio = compared(subject, chosen.candidate, best, pairs, slice_s)
                worse = ratio is not None and ratio.high < 1 - TIED
                others = watch.share_of_others()
                busy = "unknown" if others is None else f"{others:.0%}"
                shown = interval_text(ratio, 3, "the same")
                click.echo(
                    f"{name:20} {repeat + 1}: picked {chosen.candidate!s:22} best {best!s:22} "
                    f"pick/best {shown:24} {'FAILED' if worse else 'ok'}  (others: {busy})"
                )
                interval = None if ratio is None else ratio_ends(ratio)
                goals.append(Goal(f"{name}, {repeat + 1}", f"not below {1 - TIED}", shown, not worse))
                found = {"data": name, "picked": str(chosen.candidate), "best": str(best)}
                results.append({**found, "ratio": interval, "others": others})
    click.echo(f"{sum(not one.holds for one in goals)} of {len(goals)} failed")
    if target is not None:
        write_json(target, {**conditions(), "seconds": seconds, "results": results})
    end(goals)


if __name__ == "__main__":
    main()
