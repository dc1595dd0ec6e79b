"""What a verification found beside its times: what each side trained on, memory, and loading alone."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from chirp_migrate.console.screen import Screen
from chirp_migrate.console.text import sentence
from chirp_migrate.report.terminal.summary import short
from chirp_migrate.verify.document import VerifyReport
from chirp_migrate.verify.measures.metric_data import LoaderRate
from chirp_migrate.verify.spec import Trace

__all__ = ["show_loading", "show_training"]

_SIDES = ("before", "after")
_PLATEAU = 0.9
"""Share of the best rate that counts as equal to it."""


def show_training(report: VerifyReport, screen: Screen) -> None:
    """How many samples an epoch had, and the last losses; nothing where no loader was seen."""
    before, after = (report.passes.get(side, {}) for side in _SIDES)
    if not any(before.values()):
        return
    screen.heading("Samples per epoch, and last losses (training / validation)")
    rows = []
    for label, passes in before.items():
        others = after.get(label, [])
        counts = [_both(_per_pass(passes, role), _per_pass(others, role)) for role in ("train", "validation")]
        taken = sum(record.samples for record in passes)
        rates = [_rate(taken, report.seconds.get(side, {}).get(label, [])) for side in _SIDES]
        rows.append([short(label), *counts, _losses(passes), _losses(others), _both(*rates)])
    screen.table(["entry point", "train", "validation", "before", "after", "samples/s"], rows)


def show_loading(report: VerifyReport, screen: Screen) -> None:
    """Growth of memory, why there is no GPU figure, and how fast the migrated data loads by itself."""
    for side, slope in report.measures.memory_slope_mib.items():
        if slope is not None:
            text = f"Memory growth {side}: {slope.value:+.2f} MiB/epoch [{slope.low:+.2f}, {slope.high:+.2f}]."
            screen.text(text, 2)
    after = report.measures.raw.get("after")
    if after is None:
        return
    if report.measures.figures.get("after", {}).get("gpu_percent") is None and after.gpu:
        screen.text(sentence(after.gpu), 2)
    rates = [rate for rate in after.rates if rate.samples_per_second is not None]
    if rates:
        each = ", ".join(
            f"{rate.samples_per_second:,.0f} {'from the factory' if rate.loader == 'factory' else f'at {rate.workers}'}"
            for rate in rates
        )
        text = f"Loading alone after the migration, samples/s by workers of PyTorch's loader: {each}. {_plateau(rates)}"
        screen.text(text, 2)


def _per_pass(passes: Sequence[Trace], role: str) -> str:
    counts = sorted({record.samples for record in passes if record.role == role})
    if not counts:
        return "none"
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def _rate(samples: int, seconds: Sequence[float]) -> str:
    return f"{samples / statistics.median(seconds):,.0f}" if seconds and samples else "-"


def _both(before: str, after: str) -> str:
    return before if before == after else f"{before}>{after}"


def _losses(passes: Sequence[Trace]) -> str:
    """Mean loss of the last training pass and of the last validation pass in which a loss was computed."""
    texts = []
    for role in ("train", "validation"):
        means = [loss for record in passes if record.role == role and (loss := record.mean_loss()) is not None]
        texts.append(f"{means[-1]:.4f}" if means else "-")
    return " / ".join(texts)


def _plateau(rates: Sequence[LoaderRate]) -> str:
    """From how many workers on PyTorch's loader gains nothing more, and the setting that follows (R-004)."""
    plain = {rate.workers: rate.samples_per_second or 0.0 for rate in rates if rate.loader == "plain"}
    ours = next((rate.samples_per_second or 0.0 for rate in rates if rate.loader == "factory"), 0.0)
    if len(plain) < 2:
        return ""
    best = max(plain.values())
    count = min(workers for workers, rate in plain.items() if rate >= _PLATEAU * best)
    advice = "leave num_workers to the factory" if ours >= _PLATEAU * best else f"try max_workers={count} or tune=True"
    return f"More than {count} workers gain nothing more there: {advice}."
