"""Whether both sides train the same: what differs, in sentences that name the first difference.

Where nothing is random, batches, losses and results must be equal to the last bit. Where samples are augmented,
the same samples must be trained on, and the augmentation must have the same distribution: two-sample tests on
statistics of each augmented sample, at alpha 0.001 after Holm's correction over all tests of a verification.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chirp_migrate.verify.observe import STATISTICS
from chirp_migrate.verify.spec import EntryResult, PassRecord
from chirp_migrate.verify.statistics import holm, ks_p_value

__all__ = ["ALPHA", "Equivalence", "compare_passes", "compare_results"]

ALPHA = 0.001


@dataclass(frozen=True)
class Equivalence:
    """What a comparison showed.

    Attributes:
        differences: one sentence each; empty when both sides train the same.
        notes: what could not be compared, and why.
        smallest_p: smallest adjusted p-value by entry point with augmentation.
    """

    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    smallest_p: Mapping[str, float] | None = None


def compare_passes(before: Mapping[str, EntryResult], after: Mapping[str, EntryResult]) -> Equivalence:
    """Compare what the loaders of both sides yielded in a PROBE pass, entry point by entry point."""
    differences: list[str] = []
    samples: list[tuple[str, str, float]] = []
    for label, old in before.items():
        found = _compare_entry(old.passes, after[label].passes)
        differences += [f"{label}: {text}" for text in found]
        if not found:
            samples += [(label, *test) for test in _distribution_tests(old.passes, after[label].passes)]
    smallest: dict[str, float] = {}
    for (label, statistic, _), p in zip(samples, holm([p for *_, p in samples]), strict=True):
        smallest[label] = min(smallest.get(label, 1.0), p)
        if p < ALPHA:
            differences.append(f"{label}: augmented samples differ in their {statistic} (adjusted p = {p:.2g})")
    return Equivalence(tuple(differences), (), smallest)


def compare_results(
    before: Mapping[str, EntryResult],
    before_again: Mapping[str, EntryResult],
    after: Mapping[str, EntryResult],
    after_again: Mapping[str, EntryResult],
) -> Equivalence:
    """Compare what the entry points returned; a second run of each side tells what repeats at all.

    Values that differ between two runs of the side before (times, for example) are noted and not compared.
    Entry points with augmentation draw other random numbers, so of their results only the form is compared.
    """
    differences: list[str] = []
    notes: list[str] = []
    for label, old in before.items():
        a, a_again = old.fingerprint, before_again[label].fingerprint
        b, b_again = after[label].fingerprint, after_again[label].fingerprint
        varying = {path for path in a.keys() | a_again.keys() if a.get(path) != a_again.get(path)}
        if varying:
            notes.append(f"{label}: {_some(varying)}: not the same in two runs of the side before either")
        unstable = {path for path in b.keys() | b_again.keys() if b.get(path) != b_again.get(path)} - varying
        if unstable:
            differences.append(f"{label}: {_some(unstable)}: repeatable before the migration, not after")
        elif any(record.random for record in old.passes):
            if lost := a.keys() - b.keys() - varying:
                differences.append(f"{label}: {_some(lost)}: no longer in the result")
        elif changed := {p for p in a.keys() | b.keys() if a.get(p) != b.get(p)} - varying:
            first = min(changed)
            differences.append(
                f"{label}: other results in {_some(changed)}: {_short(a, first)} before, {_short(b, first)} after"
            )
    return Equivalence(tuple(differences), tuple(notes))


def _compare_entry(before: list[PassRecord], after: list[PassRecord]) -> list[str]:
    """Differences in one entry point; of each role the first, as later ones follow from it."""
    found: list[str] = []
    augmented = any(record.random for record in before)
    for role in ("train", "validation"):
        old = [record for record in before if record.role == role]
        new = [record for record in after if record.role == role]
        if len(old) != len(new):
            found.append(f"{role} loaders are walked {len(old)} times before and {len(new)} times after")
            continue
        for number, (a, b) in enumerate(zip(old, new, strict=True), start=1):
            difference = _compare_pass(a, b, augmented)
            if difference:
                found.append(f"{role} pass {number}: {difference}")
                break
    return found


def _compare_pass(a: PassRecord, b: PassRecord, augmented: bool) -> str | None:
    """The first difference of two passes; ``augmented`` says that random samples occur in the entry point."""
    if a.samples != b.samples:
        return f"{a.samples} samples before, {b.samples} after"
    if len(a.batches) != len(b.batches):
        return f"{len(a.batches)} batches before, {len(b.batches)} after"
    if a.random != b.random:
        return "samples are augmented before, not after" if a.random else "samples are augmented after, not before"
    if a.shuffled != b.shuffled:
        return "samples are shuffled before, not after" if a.shuffled else "samples are shuffled after, not before"
    if a.random or (augmented and a.shuffled):
        # The random numbers of the augmentation come from elsewhere now, and the order of the samples with them.
        if a.whole and a.labels != b.labels:
            return f"other samples: labels {a.labels} before, {b.labels} after"
        if not a.random and a.whole and a.contents != b.contents:
            return "other samples after than before"
        return None
    for number, (old, new) in enumerate(zip(a.batches, b.batches, strict=True), start=1):
        if old != new:
            order = "the same samples in another order" if a.contents == b.contents else "other values"
            return f"batch {number} of {len(a.batches)} is the first that differs ({order})"
    if not augmented:
        if len(a.losses) != len(b.losses):
            return f"{len(a.losses)} losses are computed before, {len(b.losses)} after"
        for number, (old, new) in enumerate(zip(a.losses, b.losses, strict=True), start=1):
            if old != new:
                return f"loss {number} is {float.fromhex(old)!r} before, {float.fromhex(new)!r} after, on equal batches"
    return None


def _distribution_tests(before: list[PassRecord], after: list[PassRecord]) -> list[tuple[str, float]]:
    """(statistic, p-value) for the augmented samples of one entry point."""
    old = [row for record in before if record.random for row in record.statistics]
    new = [row for record in after if record.random for row in record.statistics]
    if not old or not new:
        return []
    return [
        (name, ks_p_value([row[column] for row in old], [row[column] for row in new]))
        for column, name in enumerate(STATISTICS)
    ]


def _some(paths: set[str]) -> str:
    """One path, or how many there are and one of them."""
    first = min(paths)
    return f"1 value ({first})" if len(paths) == 1 else f"{len(paths)} values (such as {first})"


def _short(leaves: Mapping[str, str], path: str) -> str:
    text = leaves.get(path, "missing")
    return text if len(text) <= 60 else text[:57] + "..."
