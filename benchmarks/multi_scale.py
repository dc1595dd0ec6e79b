"""`make bench-multi-scale`: compare training that makes all scales of the images at once, or each scale on demand.

The legacy mode, which makes all scales at once, is the reference. All modes train from the same weights on the same
samples in the same order. Each training runs in a separate process, and the modes take turns, round after round. The
benchmark compares the peak memory (on CUDA, the peak of PyTorch's allocator), the samples per second after the first
step, the losses of every step, and the final weights. The benchmark writes `multi-scale.json` (raw values) and
`multi-scale.md` (tables).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch
from harness import Goal, Progress, check_option, conditions, end, interval_text, made_by, output_option, turns, write
from harness import table as table_of
from torch import Tensor, nn
from torch.utils.data import Dataset

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirpid_patch.factory import OptimalDataLoaderFactory
from chirpid_patch.machine.process_memory import process_memory
from chirpid_patch.scales.dataset import MultiScaleDataset
from chirpid_patch.scales.step import MultiScaleStep

_MIB = 2**20
#: Kind of normalisation → modes to compare, each with its title in the table.
_WAYS = {
    "group": {"legacy": "every scale at once", "on demand": "on demand", "budget": "on demand, in parts of a budget"},
    "batch": {"legacy": "every scale at once", "on demand": "on demand"},
}
_REDUCTION = 0.70
_CLOSE = 1e-4


@dataclass(frozen=True)
class Sizes:
    """The size of the training."""

    scales: tuple[int, ...]
    samples: int
    batch_size: int
    budget_mib: int
    device: str
    threads: int


@dataclass(frozen=True)
class Run:
    """The measurements of one process.

    Attributes:
        before: memory in bytes before the training.
        peak: peak memory in bytes.
        seconds: seconds of the training after the first step.
        cpu_seconds: CPU seconds of the training after the first step.
        samples: number of samples after the first step.
        losses: loss of every step.
        weights: all weights after the training.
    """

    before: int
    peak: int
    seconds: float
    cpu_seconds: float
    samples: int
    losses: list[float]
    weights: list[float]

    @property
    def rate(self) -> float:
        """Return the samples per second after the first step."""
        return self.samples / self.seconds


def network(norm: str) -> nn.Module:
    """Return a small convolutional network for images of any size."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        between = nn.GroupNorm(4, outputs) if norm == "group" else nn.BatchNorm2d(outputs)
        return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), between, nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4)
    )


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images of bytes at the largest scale, which are created when they are read, as in decoding."""

    def __init__(self, sizes: Sizes) -> None:
        self.count, self.size = sizes.samples, max(sizes.scales)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        picture = torch.empty((3, self.size, self.size), dtype=torch.uint8)
        return picture.random_(0, 256, generator=generator), index % 4


def train(way: str, norm: str, sizes: Sizes) -> Run:
    """Train one epoch in this process."""
    torch.set_num_threads(sizes.threads)
    torch.manual_seed(2)
    model = network(norm).to(sizes.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = MultiScaleDataset(Pictures(sizes), sizes.scales, memory_efficient=way != "legacy")
    loader = OptimalDataLoaderFactory.create_training_loader(dataset, sizes.batch_size, prefetch_threads=0)
    budget = sizes.budget_mib * _MIB if way == "budget" else None
    step = MultiScaleStep(model, nn.CrossEntropyLoss(), sizes.scales, memory_budget=budget)
    before, losses, begun, cpu_begun = process_memory().bytes, [], 0.0, 0.0
    if sizes.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    for number, batch in enumerate(loader):
        optimizer.zero_grad()
        losses.append(step(batch).loss)
        optimizer.step()
        del batch
        if number == 0:
            losses[0].item()  # waits for the device
            begun, cpu_begun = time.perf_counter(), time.process_time()
    values = [loss.item() for loss in losses]
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    weights = torch.cat([part.detach().flatten() for part in model.parameters()]).tolist()
    return Run(before, peak_bytes(sizes.device), seconds, cpu, sizes.samples - sizes.batch_size, values, weights)


def peak_bytes(device: str) -> int:
    """Return the peak memory of this process in bytes, or the peak of its tensors on the device."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():  # unlike ru_maxrss, it does not include the memory of the parent process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_process(way: str, norm: str, sizes: Sizes) -> Run:
    """Run ``train`` in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "run.json"
        command = [sys.executable, __file__, "--one", way, norm, str(target), "--sizes", json.dumps(asdict(sizes))]
        subprocess.run(command, check=True)
        return Run(**json.loads(target.read_text()))


@dataclass(frozen=True)
class Compared:
    """The comparison of one mode with the legacy mode, round by round."""

    runs: Sequence[Run]
    legacy: Sequence[Run]

    @property
    def reduction(self) -> float:
        """Return the share by which the median peak memory is below the peak of the legacy mode."""
        return 1 - median(run.peak for run in self.runs) / median(run.peak for run in self.legacy)

    @property
    def training_reduction(self) -> float:
        """Return the share by which the training adds less memory than in the legacy mode."""
        return 1 - median(run.peak - run.before for run in self.runs) / median(
            run.peak - run.before for run in self.legacy
        )

    @property
    def time(self) -> Ratio:
        """Return time / time of the legacy mode, for the same samples."""
        return paired_ratio([run.seconds for run in self.legacy], [run.seconds for run in self.runs])

    @property
    def cpu_time(self) -> Ratio:
        """Return CPU time / CPU time of the legacy mode, which other programs hardly change."""
        return paired_ratio([run.cpu_seconds for run in self.legacy], [run.cpu_seconds for run in self.runs])

    def difference(self, name: str) -> float:
        """Return the largest absolute difference of losses or weights / the largest absolute value in legacy mode."""
        mine, other = (torch.tensor(getattr(side[0], name), dtype=torch.float64) for side in (self.runs, self.legacy))
        return float((mine - other).abs().max() / other.abs().max())


def table(norm: str, ways: dict[str, Compared]) -> list[str]:
    """Return the rows of the table for one kind of normalisation."""
    header = [
        "way", "peak, MiB", "of it before training", "peak below legacy", "training's part below legacy", "samples/s",
        "time against legacy [95 %]", "CPU time against legacy [95 %]", "largest difference of losses, weights",
    ]  # fmt: skip
    rows = []
    for way, found in ways.items():
        peak, before = (median(getattr(run, name) for run in found.runs) / _MIB for name in ("peak", "before"))
        beside = ["", ""], ["1", "1", ""]
        if way != "legacy":
            times = [interval_text(one) for one in (found.time, found.cpu_time)]
            differences = f"{found.difference('losses'):.0e}, {found.difference('weights'):.0e}"
            beside = [f"{found.reduction:.0%}", f"{found.training_reduction:.0%}"], [*times, differences]
        rate = f"{median(run.rate for run in found.runs):.1f}"
        rows.append([_WAYS[norm][way], f"{peak:.0f}", f"{before:.0f}", *beside[0], rate, *beside[1]])
    return [f"**{norm} norm**", "", *table_of(header, rows), ""]


def goals_of(results: dict[str, dict[str, Compared]]) -> list[Goal]:
    """Return the goals for each mode."""
    found = []
    for norm, ways in results.items():
        for way, one in ways.items():
            if way == "legacy":
                continue
            difference, time = max(one.difference("losses"), one.difference("weights")), one.time
            what = f"{norm} norm, {way}"
            found.append(Goal(f"{what}: same training", f"≤ {_CLOSE:.0e}", f"{difference:.0e}", difference <= _CLOSE))
            slower = time.wholly_above(1.0)
            found.append(Goal(f"{what}: not slower", "≤ 1", f"{time.value:.2f} [{time.low:.2f}, …", not slower))
    less = results["group"]["budget"].reduction
    return [*found, Goal("in parts of a budget: less memory", f"≥ {_REDUCTION:.0%}", f"{less:.0%}", less >= _REDUCTION)]


@click.command()
@click.option("--rounds", type=click.IntRange(min=2), default=5, show_default=True)
@click.option("--scales", default="224,448,672", show_default=True)
@click.option("--samples", type=int, default=192, show_default=True)
@click.option("--batch-size", type=int, default=32, show_default=True)
@click.option("--budget-mib", type=int, default=64, show_default=True, help="Memory in MiB for a part of a batch.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--threads", type=int, default=1, show_default=True, help="Compute threads.")
@output_option
@check_option
@click.option("--one", nargs=3, hidden=True)
@click.option("--sizes", "given", hidden=True)
def main(
    rounds: int,
    scales: str,
    samples: int,
    batch_size: int,
    budget_mib: int,
    device: str,
    threads: int,
    output: Path,
    check: bool,
    one: tuple[str, str, str] | None,
    given: str | None,
) -> None:
    """Measure, print and write the tables."""
    if one is not None and given is not None:
        run = train(one[0], one[1], Sizes(**json.loads(given)))
        Path(one[2]).write_text(json.dumps(asdict(run)))
        return
    sizes = Sizes(tuple(map(int, scales.split(","))), samples, batch_size, budget_mib, device, threads)
    runs: dict[tuple[str, str], list[Run]] = {(norm, way): [] for norm, ways in _WAYS.items() for way in ways}
    progress = Progress()
    for number, (norm, way) in turns(list(runs), rounds):
        progress.step(f"round {number + 1} of {rounds}: {norm} norm, {way}")
        runs[norm, way].append(in_process(way, norm, sizes))
    progress.end()
    results = {
        norm: {way: Compared(runs[norm, way], runs[norm, "legacy"]) for way in ways} for norm, ways in _WAYS.items()
    }
    settings: dict[str, Any] = {**conditions(threads), **asdict(sizes)}
    goals = goals_of(results)
    lines = [
        "# Training at several scales",
        "",
        f"The {samples} images have bytes at the largest of the scales {scales}. Batches have {batch_size} images. The "
        f"memory budget is {budget_mib} MiB. The tables have medians of {rounds} rounds. {made_by(settings)}.",
        "",
        *(line for norm, ways in results.items() for line in table(norm, ways)),
        "The peak memory is the peak of "
        + ("PyTorch's CUDA allocator." if device == "cuda" else "the whole process with Python and PyTorch."),
        "Batch norm needs the statistics of the whole batch, so a batch cannot be computed in parts.",
        "",
        *(f"Missed goal: {one.what} is {one.measured}, but {one.wanted} is wanted." for one in goals if not one.holds),
    ]
    raw = {
        f"{norm}, {way}": [asdict(run) | {"weights": len(run.weights)} for run in found]
        for (norm, way), found in runs.items()
    }
    text = "\n".join(lines).rstrip() + "\n"
    click.echo(text)
    write(output, "multi-scale", text, {"settings": settings, "runs": raw})
    end(goals, check)


if __name__ == "__main__":
    main()
