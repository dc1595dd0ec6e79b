"""`python benchmarks/gpu.py OUT_DIR`: measure how long a GPU waits for data with six different loaders.

The benchmark first checks that all loaders yield the same batches. Then it trains a small and a medium CNN with batches
of 24, 32, 48 and 256 samples, with and without augmentation. Six loaders take turns, round after round (`gpu_bench/`):
the original code without workers, the original code with 4 workers, the original code with the settings of a guide, the
migrated loader with pinned memory, the migrated loader with its samples on the device, and a single batch that stays on
the device. The single batch shows the limit that no loader can exceed. The benchmark also measures the cost of
`.item()`, `.cpu().numpy()` and `empty_cache()` in every training step. The benchmark writes `gpu.json` (raw values,
updated after every training) and `gpu.txt` to OUT_DIR, and prints a table at the end.

The exit code is 0 if all targets are met, 1 if a target is missed or was not measured, 2 if an option is invalid, and 3
if PyTorch finds no CUDA device. With `--device cpu` or `--quick`, the benchmark does not judge targets, and exit code 0
means that all loaders yield the same batches.
"""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from gpu_bench import correctness, stalls
from gpu_bench.cells import cells, measure, seconds_for_cell
from gpu_bench.measure import Span
from gpu_bench.original import MEDIUM, SMALL, Backend, Data
from gpu_bench.report import CPU_LABEL, QUICK_LABEL, Run, as_data, as_text_report
from harness import Progress, conditions, write_json

from chirpid_patch.machine.nvml import GpuProbe

NO_CUDA = 3
_STALLS_SHARE = 0.1  # share of the time that is left after the key cells
_ENDING_S = 5.0  # seconds for the report


@dataclass(frozen=True)
class Sizes:
    """The sizes and time limits of the trainings.

    Attributes:
        samples: number of samples in memory.
        shape: shape of a sample.
        batch_sizes: all batch sizes to measure.
        key_size: the batch size for which targets are judged.
        budget_s: seconds for all parts of the benchmark.
        longest_turn_s: largest number of seconds of a turn; a turn has at least one epoch.
        most_rounds: largest number of rounds.
    """

    samples: int
    shape: tuple[int, int, int]
    batch_sizes: tuple[int, ...]
    key_size: int
    budget_s: float
    longest_turn_s: float
    most_rounds: int


_FULL = Sizes(1600, (1, 224, 313), (24, 32, 48, 256), 32, 440.0, 3.0, 5)
_QUICK = Sizes(20, (1, 32, 64), (8,), 8, 120.0, 0.0, 2)


class _Budget:
    """The time budget, which begins when the object is created."""

    def __init__(self, sizes: Sizes) -> None:
        self._ends = time.monotonic() + sizes.budget_s - _ENDING_S
        self._sizes = sizes

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends - time.monotonic())

    def span(self, seconds: float) -> Span:
        """Return a span of ``seconds`` seconds that begins now."""
        return Span(time.monotonic() + seconds, self._ends, self._sizes.longest_turn_s, self._sizes.most_rounds)


@click.command(help=__doc__)
@click.argument("out_dir", type=click.Path(file_okay=False, path_type=Path))
@click.option("--device", "where", default="cuda", show_default=True, help="cuda, cuda:N, or cpu (only a self-test).")
@click.option("--quick", is_flag=True, help="Few, small samples, to test the benchmark itself.")
@click.option("--budget", type=click.FloatRange(min=1), help="Seconds for all parts.  [default: 440; quick: 120]")
@click.option("--samples", type=click.IntRange(min=2), help="Number of samples.  [default: 1600; quick: 20]")
def main(out_dir: Path, where: str, quick: bool, budget: float | None, samples: int | None) -> None:
    """Check, measure and print the report."""
    device = _device(where)
    sizes = _QUICK if quick else _FULL
    sizes = replace(sizes, samples=samples or sizes.samples, budget_s=budget or sizes.budget_s)
    ran = conditions()
    settings: dict[str, Any] = {"command": ran["command"], "device": str(device), **asdict(sizes)}
    label = CPU_LABEL if device.type == "cpu" else QUICK_LABEL if quick else None
    planned = cells(sizes.batch_sizes, sizes.key_size)
    run = Run(settings, ran["machine"], label, planned)
    out_dir.mkdir(parents=True, exist_ok=True)
    for _ in _measure_all(run, sizes, device):
        write_json(out_dir / "gpu.json", as_data(run))
    text = as_text_report(run)
    (out_dir / "gpu.txt").write_text(text + "\n", encoding="utf-8")
    click.echo(f"Written: gpu.json, gpu.txt in {out_dir}", err=True)
    click.echo(text)
    sys.exit(0 if run.holds else 1)


def _measure_all(run: Run, sizes: Sizes, device: torch.device) -> Iterator[None]:
    """Check the batches, and then measure as long as time is left. Trainings with targets are measured first.

    The function adds its results to ``run``, and yields after each measurement.
    """
    budget, say = _Budget(sizes), Progress().step
    warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
    say(f"making {sizes.samples} spectrograms")
    backend = Backend.unmigrated()
    data = Data(backend, sizes.samples, sizes.shape)
    torch.optim.Adam([torch.zeros(1)])  # the first optimiser of a process imports a compiler
    gc.collect()
    gc.freeze()  # garbage collection then skips the objects of the imports
    say("are the batches the same?")
    run.checks = correctness.check(data, sizes.key_size, device)
    yield
    with GpuProbe() as probe:
        for number, cell in enumerate(run.planned):
            if not (run.stalls or cell.key) and budget.left_s:
                say("calls that make a GPU wait")
                both, span = (MEDIUM, SMALL), budget.span(_STALLS_SHARE * budget.left_s)
                run.stalls = stalls.measure(backend, data, both, sizes.key_size, device, probe, span)
            if budget.left_s:
                span = budget.span(seconds_for_cell(budget.left_s, cell, run.planned[number:]))
                run.results.append(measure(cell, backend, data, device, probe, span, say))
            yield


def _device(where: str) -> torch.device:
    try:
        device = torch.device(where)
    except RuntimeError:
        problem = f"{where!r} is not a device of PyTorch: pass cuda, cuda:N or cpu."
        raise click.BadParameter(problem, param_hint="--device") from None
    if device.type not in ("cuda", "cpu"):
        raise click.BadParameter(f"pass cuda or cpu, not {device.type}", param_hint="--device")
    if device.type == "cuda" and not torch.cuda.is_available():
        click.echo(
            "This benchmark measures a GPU, and PyTorch finds no CUDA device here: run it on a machine with one, or "
            "test the benchmark with --device cpu --quick.",
            err=True,
        )
        sys.exit(NO_CUDA)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise click.BadParameter(f"there are {torch.cuda.device_count()} CUDA devices", param_hint="--device")
    return device


if __name__ == "__main__":
    main()
