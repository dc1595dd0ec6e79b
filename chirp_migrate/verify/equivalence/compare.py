"""Whether both sides train the same: what differs, in sentences that name the first difference.

Where nothing is random, batches, losses and results must be equal to the last bit, as far as they repeat on the side
before. Where samples are augmented,
the same samples must be trained on, and the augmentation must have the same distribution: two-sample tests on
statistics of each augmented sample, at alpha 0.001 after Holm's correction over all tests of a verification.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chirp_migrate.stats.ratios import holm, ks_p_value, noticed_share, noticed_shift
from chirp_migrate.verify.document import Difference, Noticed
from chirp_migrate.verify.equivalence.api import Signature, missing_from
from chirp_migrate.verify.equivalence.augmentation import PAIRED, RELATIONS, STATISTICS, more_often_p
from chirp_migrate.verify.equivalence.traces import compare_entry, ignored, values_of
from chirp_migrate.verify.spec import EntryResult, Trace

__all__ = ["ALPHA", "Equivalence", "compare_api", "compare_results", "compare_traces"]

ALPHA = 0.001
_VALUES = {"losses-differ", "values-differ", "statistics-differ", "samples-differ"}


@dataclass(frozen=True)
class Equivalence:
    """What a comparison showed.

    Attributes:
        found: the differences; empty when both sides train the same.
        notes: what could not be compared, and why; and what is amiss on both sides alike.
        smallest_p: smallest adjusted p-value by entry point with augmentation.
        noticed: entry point → statistic → what difference its test would have noticed.
        unrepeatable: entry points whose losses or batches two runs of the side before do not have in common.
    """

    found: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    smallest_p: Mapping[str, float] = field(default_factory=dict)
    noticed: Mapping[str, Mapping[str, Noticed]] = field(default_factory=dict)
    unrepeatable: frozenset[str] = frozenset()

    @property
    def differences(self) -> tuple[str, ...]:
        """One sentence for each difference."""
        return tuple(difference.message for difference in self.found)

    def joined(self, other: Equivalence) -> Equivalence:
        """Both comparisons as one."""
        smallest = {**self.smallest_p, **other.smallest_p}
        noticed = {**self.noticed, **other.noticed}
        unrepeatable = self.unrepeatable | other.unrepeatable
        return Equivalence(self.found + other.found, self.notes + other.notes, smallest, noticed, unrepeatable)


@dataclass(frozen=True)
class _Test:
    """One statistical question: what it would show, and how likely the data are if both sides are alike.

    Of a two-sample test also the statistic, and its values on both sides.
    """

    entry_point: str
    name: str
    text: str
    p: float
    statistic: str = ""
    before: Sequence[float] = ()
    after: Sequence[float] = ()


def compare_traces(
    before: Mapping[str, EntryResult],
    after: Mapping[str, EntryResult],
    again: Mapping[str, EntryResult] | None = None,
) -> Equivalence:
    """Compare what the loaders of both sides yielded in a PROBE pass, entry point by entry point.

    Args:
        again: another pass of the side before. Losses and batches that it does not repeat, as a GPU may not, are
            compared by their distribution; None: everything repeats.
    """
    found: list[Difference] = []
    notes: list[str] = []
    tests: list[_Test] = []
    unrepeatable: set[str] = set()
    for label, old in before.items():
        new = after[label]
        varying = set() if again is None else {name for name, _ in compare_entry(old.traces, again[label].traces)}
        if varying and varying <= _VALUES:
            values = varying != {"losses-differ"}
            differences = compare_entry(*([_without_values(one, values) for one in of.traces] for of in (old, new)))
            tests += _value_tests(label, old.traces, new.traces, values)
            unrepeatable.add(label)
            what = "batches and losses" if values else "losses"
            notes.append(f"{label}: {what} differ in two runs of the side before, too: compared by their distribution")
        else:
            differences = compare_entry(old.traces, new.traces)
            if again is not None and [one.losses for one in old.traces] != [one.losses for one in again[label].traces]:
                unrepeatable.add(label)  # augmented: losses are not compared, but what comes of them is
        if {name for name, _ in differences} <= {"order-differs"}:
            aspect = ignored(old.seeds, new.seeds)
            if aspect is not None:
                differences.append(("seed-ignored", f"{aspect}: the same with two seeds after, not before"))
        if not differences:
            tests += _distribution_tests(label, old.traces, new.traces)
        found += [Difference.of(name, label, text) for name, text in differences]
        picklable, text = _picklability(old.traces, new.traces)
        if text and picklable:
            found.append(Difference.of("not-picklable", label, text))
        elif text:
            notes.append(f"{label}: {text}")
        notes += [f"{label}: {text}" for text in _left_out(new.traces)]
    smallest: dict[str, float] = {}
    named: set[tuple[str, str]] = set()
    adjusted = holm([test.p for test in tests])
    for p, test in sorted(zip(adjusted, tests, strict=True), key=lambda pair: pair[0]):
        smallest[test.entry_point] = min(smallest.get(test.entry_point, 1.0), p)
        if p < ALPHA and (test.entry_point, test.name) not in named:
            named.add((test.entry_point, test.name))  # of each name the clearest: the others follow from it
            found.append(Difference.of(test.name, test.entry_point, f"{test.text} (adjusted p = {p:.2g})"))
    return Equivalence(tuple(found), tuple(notes), smallest, _noticed(tests), frozenset(unrepeatable))


def _noticed(tests: Sequence[_Test]) -> dict[str, dict[str, Noticed]]:
    """What each two-sample test could have found; Holm's correction asks all of the first one that it finds."""
    found: dict[str, dict[str, Noticed]] = {}
    for test in tests:
        if test.statistic:
            samples = len(test.before), len(test.after)
            share = noticed_share(*samples, ALPHA / len(tests))
            noticed = Noticed(share, noticed_shift(test.before, share), samples)
            found.setdefault(test.entry_point, {})[test.statistic] = noticed
    return found


def compare_api(
    before: dict[str, dict[str, Signature | str]], after: dict[str, dict[str, Signature | str]]
) -> Equivalence:
    """Compare the public names and signatures of both sides."""
    return Equivalence(tuple(Difference.of("api-changed", "", text) for text in missing_from(before, after)))


def compare_results(
    before: Mapping[str, EntryResult],
    before_again: Mapping[str, EntryResult],
    after: Mapping[str, EntryResult],
    after_again: Mapping[str, EntryResult],
    unrepeatable: Collection[str] = (),
) -> Equivalence:
    """Compare what the entry points returned; a second run of each side tells what repeats at all.

    Values that differ between two runs of the side before (times, for example) are noted and not compared.
    Entry points with augmentation draw other random numbers, so of their results only the form is compared, as of those
    that are ``unrepeatable``.
    """
    found: list[Difference] = []
    notes: list[str] = []
    for label, old in before.items():
        a, a_again = old.fingerprint, before_again[label].fingerprint
        b, b_again = after[label].fingerprint, after_again[label].fingerprint
        varying = {path for path in a.keys() | a_again.keys() if a.get(path) != a_again.get(path)}
        if varying:
            notes.append(f"{label}: {_some(varying)}: not the same in two runs of the side before either")
        unstable = {path for path in b.keys() | b_again.keys() if b.get(path) != b_again.get(path)} - varying
        if unstable and label not in unrepeatable:
            text = f"{_some(unstable)}: repeatable before the migration, not after, with the same seed"
            found.append(Difference.of("seed-ignored", label, text))
        elif label in unrepeatable or any(record.random for record in old.traces):
            if lost := a.keys() - b.keys() - varying:
                found.append(Difference.of("result-missing", label, f"{_some(lost)}: no longer in the result"))
        elif changed := {p for p in a.keys() | b.keys() if a.get(p) != b.get(p)} - varying:
            first = min(changed)
            text = f"other results in {_some(changed)}: {_short(a, first)} before, {_short(b, first)} after"
            found.append(Difference.of("results-differ", label, text))
    return Equivalence(tuple(found), tuple(notes))


def _distribution_tests(label: str, before: Sequence[Trace], after: Sequence[Trace]) -> list[_Test]:
    """The tests on the augmented samples of one entry point."""
    old, new = ([record for record in side if record.random] for side in (before, after))
    if not old or not new:
        return []
    paired = all(a.plain_contents and a.plain_contents == b.plain_contents for a, b in zip(old, new, strict=True))
    kinds: list[tuple[tuple[str, ...], str]] = [(STATISTICS, "statistics")]
    if paired:
        kinds.append((PAIRED, "paired"))
    tests = []
    for names, attribute in kinds:
        a, b = ([row for record in side for row in getattr(record, attribute)] for side in (old, new))
        if a and b:
            tests += [
                _distribution_test(label, name, [row[column] for row in a], [row[column] for row in b])
                for column, name in enumerate(names)
            ]
    return tests + _repeat_tests(label, old, new)


def _distribution_test(label: str, name: str, before: list[float], after: list[float]) -> _Test:
    means = [sum(values) / len(values) for values in (before, after)]
    text = f"augmented samples differ in their {name} (mean {means[0]:.4g} before, {means[1]:.4g} after)"
    return _Test(label, "augmentation-distribution", text, ks_p_value(before, after), name, before, after)


def _without_values(record: Trace, batches: bool) -> Trace:
    """The record without values of losses, and where asked for without those of batches, but with which samples."""
    record = replace(record, losses=[float(0).hex()] * len(record.losses))
    if not batches:
        return record
    which = record.base_indices
    return replace(record, batches=[repr(which)], contents=repr(sorted(which)), plain_contents="", sketches=[])


def _value_tests(label: str, before: Sequence[Trace], after: Sequence[Trace], batches: bool) -> list[_Test]:
    """Tests on losses, and where asked for on values of batches, that do not repeat."""
    tests = []
    for role in ("train", "validation"):
        sides = [[record for record in side if record.role == role] for side in (before, after)]
        losses = [[float.fromhex(loss) for record in side for loss in record.losses] for side in sides]
        found = [("losses-differ", f"{role} losses", losses)]
        if batches:
            values = [[v for record in side for text in record.sketches for v in values_of(text)] for side in sides]
            found.append(("values-differ", f"{role} values", values))
        for name, what, (old, new) in found:
            if old and new:
                text = f"{what} have another distribution"
                tests.append(_Test(label, name, text, ks_p_value(old, new), what, old, new))
    return tests


def _repeat_tests(label: str, before: Sequence[Trace], after: Sequence[Trace]) -> list[_Test]:
    tests = []
    for relation, where in RELATIONS.items():
        (total, equal), (total_after, equal_after) = (_repeated(side, relation) for side in (before, after))
        if total and total_after:
            shares = f"{equal} of {total} before, {equal_after} of {total_after} after"
            tests.append(
                _Test(
                    label,
                    "equal-worker-streams" if relation == "batches" else "repeated-augmentation",
                    f"augmented samples {where} have equal random numbers: {shares}",
                    more_often_p(equal, total, equal_after, total_after),
                )
            )
    return tests


def _repeated(records: Sequence[Trace], relation: str) -> tuple[int, int]:
    """Pairs, and equal pairs, of all walks."""
    counts = [record.repeats.get(relation, (0, 0)) for record in records]
    return sum(total for total, _ in counts), sum(equal for _, equal in counts)


def _picklability(before: Sequence[Trace], after: Sequence[Trace]) -> tuple[bool, str]:
    """Whether every loader before could be sent to spawned workers, and which one after cannot and why."""
    first = next(((n, record) for n, record in enumerate(after, start=1) if record.unpicklable), None)
    if first is None:
        return True, ""
    number, record = first
    was = not any(old.unpicklable for old in before)
    sides = "after, and could before" if was else "either before or after"
    return was, f"{record.role} loader of pass {number} cannot be sent to spawned workers {sides}: {record.unpicklable}"


def _left_out(after: Sequence[Trace]) -> list[str]:
    """Validation that does not see every sample, on both sides alike."""
    for number, record in enumerate((r for r in after if r.role == "validation"), start=1):
        if record.drop_last and 0 <= record.samples < record.available:
            lost = record.available - record.samples
            return [f"validation pass {number} leaves out {lost} of {record.available} samples (drop_last)"]
    return []


def _some(paths: set[str]) -> str:
    """One path, or how many there are and one of them."""
    first = min(paths)
    return f"1 value ({first})" if len(paths) == 1 else f"{len(paths)} values (such as {first})"


def _short(leaves: Mapping[str, str], path: str) -> str:
    text = leaves.get(path, "missing")
    return text if len(text) <= 60 else text[:57] + "..."
