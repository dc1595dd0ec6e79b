"""What ``tune`` found, as one document: ``--json`` writes it, the terminal shows it.

docs/json.md says what each field is. A field that is added has a default.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from chirp_migrate.training.watch.augmentation import share_of_loading
from chirp_migrate.tune.candidate import Candidate
from chirp_migrate.tune.plateau import Place, Standing, pick, settled, standings
from chirp_migrate.tune.recommend import Recommendation, recommendations
from chirp_migrate.tune.request import Findings, LoaderFindings, Training

__all__ = ["Beside", "LoaderReport", "TuneReport", "tune_report"]


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration beside the best.

    Attributes:
        configuration: in words.
        place, settled: the outcome, and whether further rounds could not well change it.
        samples_per_s, interval, batches_per_s: its throughput; None where it failed, was not repeated, or a batch
            sampler decides.
        beside_best, beside_best_interval: its rate / the best one's; None for the best, and after a single round.
    """

    configuration: str
    place: Place
    settled: bool
    samples_per_s: float | None = None
    interval: tuple[float, float] | None = None
    batches_per_s: float | None = None
    beside_best: float | None = None
    beside_best_interval: tuple[float, float] | None = None


@dataclass
class LoaderReport(LoaderFindings):
    """What was found for one loader, and what follows; ``standings`` are those of ``measured``, in its order."""

    picked: Candidate | None = None
    settled: bool = True
    standings: list[Beside] = field(default_factory=list)
    augmentation_share: float | None = None
    recommendations: list[Recommendation] = field(default_factory=list)


class TuneReport(msgspec.Struct, frozen=True, kw_only=True):
    """All raw values, and what is concluded from them; ``described`` says in words what it was measured on."""

    schema: Literal[1] = 1
    tool: str
    loaders: list[LoaderReport]
    training: Training | None
    notes: list[str]
    machine: dict[str, Any]
    described: str = ""


def tune_report(findings: Findings, machine: dict[str, Any], described: str, tool: str) -> TuneReport:
    """Conclude; recommendations that concern the training as a whole stand with the first loader."""
    loaders = []
    for number, found in enumerate(findings.loaders):
        placed = standings(found.measured)
        chosen = pick(placed)
        loaders.append(
            LoaderReport(
                **{one.name: getattr(found, one.name) for one in dataclasses.fields(found)},
                picked=None if chosen is None else chosen.candidate,
                settled=settled(placed),
                standings=[_beside(one, found.batch_size) for one in placed],
                augmentation_share=share_of_loading(found.with_s, found.without_s),
                recommendations=recommendations(found, findings.training if number == 0 else None),
            )
        )
    return TuneReport(
        tool=tool,
        loaders=loaders,
        training=findings.training,
        notes=findings.notes,
        machine=machine,
        described=described,
    )


def _beside(one: Standing, batch_size: int | None) -> Beside:
    rate, ratio = one.rate, one.ratio
    return Beside(
        configuration=str(one.candidate),
        place=one.place,
        settled=one.settled,
        samples_per_s=None if rate is None else rate.value,
        interval=None if rate is None or rate.low is None or rate.high is None else (rate.low, rate.high),
        batches_per_s=None if rate is None or not batch_size else rate.value / batch_size,
        beside_best=None if ratio is None else ratio.value,
        beside_best_interval=None if ratio is None else (ratio.low, ratio.high),
    )
