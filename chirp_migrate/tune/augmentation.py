"""What augmentation adds to loading: the same dataset with and without it, loaded in the process, in turns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from chirp_migrate.training.watch.augmentation import time_both
from chirp_migrate.training.watch.samples import unaugmented, varying
from chirp_migrate.tune.candidate import Candidate
from chirp_migrate.tune.subject import Subject
from chirp_migrate.tune.sweep import measure

__all__ = ["Augmentation", "augmentation"]

_ROUNDS = 5
_SLICE_S = 0.2


@dataclass
class Augmentation:
    """Seconds a batch, by round; empty with the reason where they could not be measured."""

    with_s: list[float] = field(default_factory=list)
    without_s: list[float] = field(default_factory=list)
    reason: str | None = None


def augmentation(subject: Subject, migrated: bool, seconds: float) -> Augmentation:
    """Time loading with and without augmentation, five rounds, fewer where ``seconds`` are over, one at least."""
    if subject.options.get("batch_sampler") is not None:
        return Augmentation(reason="its batch sampler may ask for what another dataset does not have")
    plain = subject.unaugmented
    if plain is None:
        if not varying(subject.dataset, subject.collate):
            return Augmentation(reason="its samples are the same each time they are read: it does not augment")
        plain = unaugmented(subject.dataset, subject.collate)
    if plain is None:
        return Augmentation(
            reason="it holds no dataset with the same samples unaugmented: name one with --unaugmented MODULE:CALLABLE"
        )
    way = Candidate(0, batch_size=subject.batch_size)
    with_s, without_s = time_both(
        subject,
        replace(subject, dataset=plain),
        lambda side: measure(side, way, migrated, _SLICE_S).batch_s,
        _ROUNDS,
        time.monotonic() + seconds,
    )
    return Augmentation(with_s, without_s)
