"""Is what `chirp-migrate tune` picks as fast as the best of the whole sweep?  `python benchmarks/tune.py [--quick]`

For samples in memory, memory-mapped, and costing 5 ms of CPU time each to decode, several times over: tune's sweep
picks a configuration; then every configuration is measured equally often, without giving any up, and the fastest is the
exhaustive sweep's best; then the pick and that best are measured again, in pairs. A repeat fails if the whole interval
of the ratio (rate of the pick / rate of the best) lies below 0.95. Prints a table, writes raw values with --json, and
ends with 1 if a repeat failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirp_migrate.training.process import machine
from chirp_migrate.training.process.background_load import Watch
from chirp_migrate.tune.candidate import Candidate, Measured, grid
from chirp_migrate.tune.plateau import TOLERANCE, mean_rate, pick, standings
from chirp_migrate.tune.subject import Subject, of_dataset
from chirp_migrate.tune.sweep import Sweep, measure
from chirpid_patch.machine.cpus import usable_cpus

SHAPE = (1, 224, 313)
WORKERS, PREFETCH, BATCH_SIZE = (0, 2, 4, 8), (2, 4), 32
DECODE_S = 0.005


class Mapped(Dataset[Any]):
    """Spectrograms in a memory-mapped file, copied one at a time."""

    def __init__(self, file: Path) -> None:
        self.samples = np.load(file, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(np.array(self.samples[index])), index % 31


class Decoded(Dataset[Any]):
    """Samples that take 5 ms of CPU time each, in Python."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        until = time.thread_time() + DECODE_S
        while time.thread_time() < until:
            pass
        return torch.full((1, 64, 64), float(index)), index % 31


def subjects(folder: Path) -> dict[str, Subject]:
    """What is loaded, by name."""
    features = torch.rand(512, *SHAPE, generator=torch.Generator().manual_seed(0))
    file = folder / "mapped.npy"
    np.save(file, features.numpy())
    labels = torch.arange(len(features)) % 31
    return {
        "in memory": of_dataset(TensorDataset(features, labels), BATCH_SIZE),
        "memory-mapped": of_dataset(Mapped(file), BATCH_SIZE),
        "decode-heavy (5 ms)": of_dataset(Decoded(), BATCH_SIZE),
    }


def exhaustive_best(subject: Subject, ways: list[Candidate], rounds: int, slice_s: float) -> Candidate:
    """The fastest of all ways, each measured in every round."""
    measured = [Measured(way) for way in ways]
    for number in range(rounds):
        for one in measured if number % 2 == 0 else reversed(measured):
            one.rates.append(measure(subject, one.candidate, True, slice_s).samples_per_s)
    return max(measured, key=lambda one: mean_rate(one.rates).value).candidate


def compared(subject: Subject, picked: Candidate, best: Candidate, pairs: int, slice_s: float) -> Ratio | None:
    """Rate of the pick / rate of the best, measured again in pairs; None where they are the same."""
    if picked == best:
        return None
    rates: dict[Candidate, list[float]] = {picked: [], best: []}
    for number in range(pairs):
        for way in (picked, best) if number % 2 == 0 else (best, picked):
            rates[way].append(measure(subject, way, True, slice_s).samples_per_s)
    return paired_ratio(rates[best], rates[picked])


def main() -> int:
    """Measure, print, and say whether a repeat failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="for tune's own sweep")
    parser.add_argument("--slice", type=float, default=0.7, help="seconds of each measurement of the others")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="two repeats of short measurements: shows that it runs")
    parser.add_argument("--only", default="", help="only data whose name contains this")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.quick:
        given.repeats, given.seconds, given.slice, given.pairs = 2, 8.0, 0.2, 4
    results, failed = [], 0
    threads = sorted({1, min(2, usable_cpus()), usable_cpus()})
    with tempfile.TemporaryDirectory() as folder:
        for name, subject in subjects(Path(folder)).items():
            if given.only not in name:
                continue
            ways = grid(WORKERS, PREFETCH, threads if name == "in memory" else (), BATCH_SIZE, None)
            for repeat in range(given.repeats):
                watch = Watch()
                sweep = Sweep(subject, ways, True, given.seconds, lambda _line: None)
                chosen = pick(standings(sweep.run()))
                assert chosen is not None
                best = exhaustive_best(subject, ways, 3, given.slice)
                ratio = compared(subject, chosen.candidate, best, given.pairs, given.slice)
                worse = ratio is not None and ratio.high < 1 - TOLERANCE
                failed += worse
                others = watch.others()
                busy = "unknown" if others is None else f"{others:.0%}"
                shown = "the same" if ratio is None else f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
                print(
                    f"{name:20} {repeat + 1}: picked {chosen.candidate!s:22} best {best!s:22} "
                    f"pick/best {shown:24} {'FAILED' if worse else 'ok'}  (others: {busy})",
                    flush=True,
                )
                interval = None if ratio is None else [ratio.value, ratio.low, ratio.high]
                results.append(
                    {
                        "data": name,
                        "picked": str(chosen.candidate),
                        "best": str(best),
                        "ratio": interval,
                        "others": others,
                    }
                )
    print(f"{failed} of {len(results)} failed")
    if given.json is not None:
        conditions = {"machine": machine.describe(torch.get_num_threads()), "seconds": given.seconds}
        given.json.write_text(json.dumps({**conditions, "results": results}, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
