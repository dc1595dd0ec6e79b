"""Measure the time that `DataLoaderProfilingHook` adds to a training loop: run steps with and without it in turns.

The benchmark runs two loops. The step of the first loop keeps the CPU busy for 5 ms, and the step of the second loop is
a real training step of about the same length. Each round times 25 steps with the hook and 25 steps without the hook.
The steps alternate, in an order that changes from step to step. The result is the mean ratio (time with / without the
hook) over all rounds, with a 95 % interval. The benchmark measures the CPU time of the training thread, because the
hook does all its work in this thread, and because other programs hardly change this time. The time includes the log
lines of the hook. The exit code is 1 if an interval reaches 1.01.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from harness import conditions, keep_busy, ratio_ends, write_json

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirpid_patch.hooks.profiling import DataLoaderProfilingHook
from chirpid_patch.hooks.trainer import TrainerHooks

_BOUND = 1.01
_STRETCH = 25  # steps
Step = Callable[[], object]


def training_step(milliseconds: float) -> Step:
    """Return forward pass, backward pass and optimiser step of a small network, for about ``milliseconds``."""
    torch.manual_seed(0)
    batch = torch.rand(64, 256)
    network = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)

    def once() -> None:
        optimiser.zero_grad()
        network(batch).square().mean().backward()
        optimiser.step()

    for _ in range(20):
        once()
    begun = time.thread_time()
    for _ in range(20):
        once()
    repeats = max(1, round(milliseconds / 1e3 / ((time.thread_time() - begun) / 20)))

    def step() -> None:
        for _ in range(repeats):
            once()

    return step


def take_step(hooks: list[TrainerHooks], step: Step, number: int) -> float:
    """Run a step of a trainer that calls hooks, and return the CPU seconds of this thread."""
    begun = time.thread_time()
    for hook in hooks:
        hook.on_train_batch_start(None, None, number, 0, "train")
    step()
    for hook in hooks:
        hook.on_train_batch_end(None, None, number, 0, "train", {})
    return time.thread_time() - begun


def compare(step: Step, rounds: int) -> tuple[Ratio, list[float], list[float]]:
    """Return the ratio with / without hook, and the seconds of each round without and with the hook.

    Steps with and without the hook alternate, so that a slow phase of the machine affects both.
    """
    hook = DataLoaderProfilingHook(device="cpu")
    ways: list[list[TrainerHooks]] = [[], [hook]]
    taken: list[list[float]] = [[], []]
    hook.on_epoch_start(None, 0)
    for number in range((rounds + 2) * _STRETCH):
        for way in (0, 1) if number % 2 == 0 else (1, 0):
            if number % _STRETCH == 0:
                taken[way].append(0.0)
            taken[way][-1] += take_step(ways[way], step, number)
    hook.on_epoch_end(None, 0)
    without, with_hook = (seconds[2:] for seconds in taken)  # the first rounds are warm-up
    return paired_ratio(without, with_hook), without, with_hook


@click.command(help=__doc__)
@click.option("--step-ms", default=5.0, show_default=True, help="Milliseconds of a step.")
@click.option("--rounds", default=400, show_default=True, help="Rounds of 25 steps with and without the hook.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="Write all times to this file.")
def main(step_ms: float, rounds: int, target: Path | None) -> None:
    """Compare, print the result, and exit."""
    logging.getLogger("chirpid_patch").addHandler(logging.NullHandler())
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    rows = []
    loops = {f"{step_ms:g} ms of CPU": partial(keep_busy, step_ms / 1e3), "training step": training_step(step_ms)}
    for name, step in loops.items():
        ratio, plain, hooked = compare(step, rounds)
        rows.append((name, ratio))
        results[name] = {"ratio": ratio_ends(ratio), "without": plain, "with": hooked}
    click.echo(f"{'time with the hook / without':<33} ratio   95 % interval")
    for name, ratio in rows:
        click.echo(f"{name:<33} {ratio.value:.4f}  [{ratio.low:.4f}, {ratio.high:.4f}]  {ratio.rounds} rounds")
    _, without, with_hook = compare(lambda: None, 2000)
    bare = (sum(with_hook) - sum(without)) / len(without) / _STRETCH
    click.echo(f"the hook itself, with warm caches: {bare * 1e6:.1f} µs a step")
    if target is not None:
        write_json(target, {**conditions(), "step_ms": step_ms, **results})
    if any(ratio.high >= _BOUND for _, ratio in rows):
        sys.exit(f"an interval reaches {_BOUND}: not shown to cost less than 1 %")


if __name__ == "__main__":
    main()
