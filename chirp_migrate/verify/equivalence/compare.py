"""Compare the trainings of both versions, and describe each difference in one sentence.

The page docs/verify.md describes which values must be equal, and how distributions are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chirp_migrate.stats.ratios import detectable_difference, holm_adjusted, ks_p_value
from chirp_migrate.verify.equivalence.api import Api, api_break_sentences
from chirp_migrate.verify.equivalence.augmentation_statistics import PAIRED, RELATIONS, STATISTICS, fisher_p_value
from chirp_migrate.verify.equivalence.first_difference import (
    decode_sample_values,
    find_lost_seed_dependence,
    first_differences_between_passes,
)
from chirp_migrate.verify.spec import EntryPointRecord, LoaderPassTrace
from chirp_migrate.verify.verify_report import TrainingDifference

ALPHA = 0.001

_USUAL_P = 0.05
"""If the p-value of a test of two runs before the migration is smaller, the distribution differs from run to run."""


@dataclass
class Equivalence:
    """The result of a comparison of the trainings before and after the migration.

    Attributes:
        found: the differences; an empty list if ``verify`` finds no difference between the trainings of both versions.
        notes: sentences on values that were not compared, and on problems that both versions have.
        smallest_p: dictionary, label (short unique name) of an entry point, which is a training function or script →
            smallest p-value of its statistical tests, after Holm's correction.
        detectable_changes: dictionary, label of an entry point → smallest change of a distribution that each two-sample
            test of the entry point finds in 9 of 10 verifications. The size of a change, 0 to 1, is the largest
            distance between the distribution functions before and after the change.
        unrepeatable: entry points whose losses or batches differ even between two runs of the version before the
            migration.
    """

    found: list[TrainingDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    smallest_p: dict[str, float] = field(default_factory=dict)
    detectable_changes: dict[str, float] = field(default_factory=dict)
    unrepeatable: set[str] = field(default_factory=set)

    @property
    def differences(self) -> tuple[str, ...]:
        """Return one sentence for each difference between the trainings."""
        return tuple(difference.message for difference in self.found)

    def add_difference(self, name: str, entry_point: str, text: str) -> None:
        """Add a difference whose message is the label of the entry point, followed by ``text``."""
        self.found.append(TrainingDifference(name, entry_point, f"{entry_point}: {text}" if entry_point else text))

    def __add__(self, other: Equivalence) -> Equivalence:
        """Return an :class:`Equivalence` that contains the results of both comparisons."""
        return Equivalence(
            self.found + other.found,
            self.notes + other.notes,
            self.smallest_p | other.smallest_p,
            self.detectable_changes | other.detectable_changes,
            self.unrepeatable | other.unrepeatable,
        )


@dataclass(frozen=True)
class _StatisticalTest:
    """A statistical test: its p-value, and the name and text of the difference to report if the p-value is small.

    For a two-sample test, ``samples`` has the numbers of values before and after the migration. For other tests,
    ``samples`` is None.
    """

    entry_point: str
    name: str
    text: str
    p: float
    samples: tuple[int, int] | None = None


def compare_recorded_passes(
    before: Mapping[str, EntryPointRecord],
    after: Mapping[str, EntryPointRecord],
    second_runs: Mapping[str, EntryPointRecord] | None = None,
) -> Equivalence:
    """Compare the recorded iterations over loaders before and after the migration.

    Args:
        before: dictionary, label of an entry point (a training function or script) → its recorded run before the
            migration.
        after: dictionary, label of the entry point → its recorded run after the migration.
        second_runs: dictionary, label of the entry point → its second recorded run before the migration; None without
            second runs. Two runs of the same training may differ, for example on a GPU or if the training draws its own
            seed. If losses or batches differ between the first and the second run, the function compares only the
            distributions of these values in both versions.
    """
    result = Equivalence()
    tests: list[_StatisticalTest] = []
    for label, old in before.items():
        new = after[label]
        again = old if second_runs is None else second_runs[label]
        varying = {name for name, _ in first_differences_between_passes(old.traces, again.traces)}
        if varying:
            values = varying != {"losses-differ"}
            first, second, migrated = _keep_repeated_parts(old.traces, again.traces, new.traces)
            # Which of two runs has fewer samples or passes is random, so both directions are usual.
            usual = {
                name
                for pair in ((first, second), (second, first))
                for name, _ in first_differences_between_passes(*pair)
            }
            differences = [one for one in first_differences_between_passes(first, migrated) if one[0] not in usual]
            tests += _value_tests(label, old.traces, again.traces, new.traces, values)
            result.unrepeatable.add(label)
            what = "batches and losses" if values else "losses"
            result.notes.append(
                f"{label}: {what} differ even between two runs before the migration, so verify compares only their "
                "distributions"
            )
        else:
            differences = first_differences_between_passes(old.traces, new.traces)
            if [one.losses for one in old.traces] != [one.losses for one in again.traces]:
                # The results of the entry point may depend on these losses, and so differ from run to run.
                result.unrepeatable.add(label)
        if {name for name, _ in differences} <= {"order-differs"}:
            aspect = find_lost_seed_dependence(old.seeds, new.seeds)
            if aspect is not None:
                differences.append(("seed-ignored", f"the seed has an effect on {aspect} only before the migration"))
        if not differences:
            tests += _distribution_tests(label, old.traces, new.traces)
        for name, text in differences:
            result.add_difference(name, label, text)
        _compare_picklability(result, label, old.traces, new.traces)
        result.notes += [f"{label}: {text}" for text in _describe_dropped_validation(new.traces)]
    _judge_tests(result, tests)
    return result


def _judge_tests(result: Equivalence, tests: Sequence[_StatisticalTest]) -> None:
    """Add to ``result`` the smallest p-values, the differences that tests find, and sizes of detectable changes."""
    named: set[tuple[str, str]] = set()
    adjusted = holm_adjusted([test.p for test in tests])
    for p, test in sorted(zip(adjusted, tests, strict=True), key=lambda pair: pair[0]):
        result.smallest_p.setdefault(test.entry_point, p)
        if p < ALPHA and (test.entry_point, test.name) not in named:
            named.add((test.entry_point, test.name))  # of each kind, report only the smallest p-value
            result.add_difference(test.name, test.entry_point, f"{test.text} (adjusted p = {p:.2g})")
    for test in tests:
        if test.samples:
            # Holm's correction compares the smallest p-value with this threshold, which is the strictest.
            change = detectable_difference(*test.samples, ALPHA / len(tests))
            known = result.detectable_changes.get(test.entry_point, 0.0)
            result.detectable_changes[test.entry_point] = max(known, change)


def compare_api(before: Api, after: Api) -> Equivalence:
    """Compare the public names and signatures before and after the migration."""
    return Equivalence([TrainingDifference("api-changed", "", text) for text in api_break_sentences(before, after)])


def compare_return_values(
    before: Mapping[str, EntryPointRecord],
    after: Mapping[str, EntryPointRecord],
    second_results: Mapping[str, Mapping[str, Mapping[str, str]]],
    unrepeatable_labels: Collection[str] = (),
) -> Equivalence:
    """Compare the return values of entry points (training functions or a script) before and after the migration.

    A second run of an entry point shows which of its return values differ from run to run. If no second run exists, the
    function assumes that all return values are the same in every run.

    If a value differs between two runs before the migration, such as a time, the function does not compare the value,
    and adds a note. Augmentation uses other random numbers after the migration. So for entry points with augmentation,
    the function checks only that no value is missing after the migration.

    Args:
        before: dictionary, label of the entry point → its recorded run before the migration.
        after: dictionary, label of the entry point → its recorded run after the migration.
        second_results: return values of the second runs, as results of :func:`.leaf_fingerprints`. The value for an
            entry point is ``second_results[version][label]``, where the version is ``before`` or ``after``.
        unrepeatable_labels: labels of entry points whose losses or batches differ from run to run. For these entry
            points, the function checks only that no value is missing after the migration.
    """
    result = Equivalence()
    for label, old in before.items():
        a, b = old.fingerprint, after[label].fingerprint
        a_again, b_again = (second_results[side].get(label, one) for side, one in (("before", a), ("after", b)))
        varying = _differing_paths(a, a_again)
        if varying:
            result.notes.append(
                f"{label}: {_shorten_paths(varying)}: not compared, because two runs before the migration differ"
            )
        unstable = _differing_paths(b, b_again) - varying
        if unstable and label not in unrepeatable_labels:
            text = f"{_shorten_paths(unstable)}: two runs with the same seed are equal only before the migration"
            result.add_difference("seed-ignored", label, text)
        elif label in unrepeatable_labels or any(record.random for record in old.traces):
            if lost := a.keys() - b.keys() - varying:
                result.add_difference("result-missing", label, f"{_shorten_paths(lost)}: no longer in the result")
        elif changed := _differing_paths(a, b) - varying:
            first = min(changed)
            values = f"{_short_leaf(a, first)} before, {_short_leaf(b, first)} after"
            text = f"the results differ in {_shorten_paths(changed)}: {values}"
            result.add_difference("results-differ", label, text)
    return result


def _differing_paths(first: Mapping[str, str], second: Mapping[str, str]) -> set[str]:
    """Return the paths, such as ``result['accuracy']``, whose values differ between two return values."""
    return {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)}


def _distribution_tests(
    label: str, before: Sequence[LoaderPassTrace], after: Sequence[LoaderPassTrace]
) -> list[_StatisticalTest]:
    """Run tests of whether the augmented samples of a training have the same distribution in both versions."""
    old, new = ([record for record in side if record.random] for side in (before, after))
    if not old or not new:
        return []
    has_pairs = all(a.plain_contents and a.plain_contents == b.plain_contents for a, b in zip(old, new, strict=True))
    kinds = [(STATISTICS, "statistics"), *([(PAIRED, "paired")] if has_pairs else [])]
    tests = []
    for names, attribute in kinds:
        rows = [[row for record in side for row in getattr(record, attribute)] for side in (old, new)]
        columns = [list(zip(*side, strict=True)) for side in rows]
        for name, a, b in zip(names, *columns, strict=False):
            means = f"mean {sum(a) / len(a):.4g} before, {sum(b) / len(b):.4g} after"
            text = f"augmented samples differ in their {name} ({means})"
            tests.append(_StatisticalTest(label, "augmentation-distribution", text, ks_p_value(a, b), (len(a), len(b))))
    return tests + _equal_randomness_tests(label, old, new)


def _keep_repeated_parts(
    old: Sequence[LoaderPassTrace], again: Sequence[LoaderPassTrace], new: Sequence[LoaderPassTrace]
) -> tuple[list[LoaderPassTrace], list[LoaderPassTrace], list[LoaderPassTrace]]:
    """Return copies of three records of a training, without the parts that differ between ``old`` and ``again``.

    The copies contain the passes over training loaders first. The passes over loaders of the same dataset keep the same
    parts, because a part of a single pass, such as a number of samples, may be equal in two runs by chance.

    Args:
        old: the passes of the first run before the migration.
        again: the passes of the second run before the migration.
        new: the passes of the run after the migration.
    """
    found: tuple[list[LoaderPassTrace], list[LoaderPassTrace], list[LoaderPassTrace]] = ([], [], [])
    has_equal_losses = [one.losses for one in old] == [one.losses for one in again]
    for role in ("train", "validation"):
        sides = [[one for one in side if one.role == role] for side in (old, again, new)]
        pairs = list(zip(*sides[:2], strict=False)) if len(sides[0]) == len(sides[1]) else []
        for copies, side in zip(found, sides, strict=True):
            for number, one in enumerate(side):
                like = sides[0][min(number, len(sides[0]) - 1)] if sides[0] else one
                group = [(a, b) for a, b in pairs if (a.base, a.available) == (like.base, like.available)]
                copies.append(_without_varying_parts(one, group, has_equal_losses))
    return found


def _without_varying_parts(
    record: LoaderPassTrace, pairs: Sequence[tuple[LoaderPassTrace, LoaderPassTrace]], keep_losses: bool
) -> LoaderPassTrace:
    """Return a copy of a record without the parts that differ in one of ``pairs``. The copy keeps the labels.

    If the order of the samples differs, the copy still contains the hash of all samples. If the values also differ, the
    copy still contains the indices of the samples. The copy contains losses only if ``keep_losses`` is True.
    """

    def is_equal(part: Callable[[LoaderPassTrace], object]) -> bool:
        return bool(pairs) and all(part(a) == part(b) for a, b in pairs)

    if not is_equal(lambda one: one.sizes):
        record = replace(record, samples=0, sizes=[], batches=[], contents="", plain_contents="", losses=[])
        return replace(record, indices=[], base_indices=[], sketches=[])
    if not keep_losses:
        record = replace(record, losses=[float(0).hex()] * len(record.losses))
    which = record.base_indices
    if not is_equal(lambda one: one.base_indices):
        which = sorted(which) if is_equal(lambda one: sorted(one.base_indices)) else []
    if record.random:
        plain = record.plain_contents if is_equal(lambda one: one.plain_contents) else ""
        return replace(record, plain_contents=plain, base_indices=which)
    if is_equal(lambda one: one.batches):
        return record
    if is_equal(lambda one: one.contents):
        return replace(record, batches=[record.contents], sketches=[])
    contents = repr(sorted(which))
    return replace(record, batches=[repr(which)], contents=contents, base_indices=which, sketches=[])


def _value_tests(
    label: str,
    before: Sequence[LoaderPassTrace],
    again: Sequence[LoaderPassTrace],
    after: Sequence[LoaderPassTrace],
    batches: bool,
) -> list[_StatisticalTest]:
    """Run statistical tests on losses and, if ``batches`` is True, on values of batches; return these tests.

    The tests compare distributions, because these values differ from run to run even without a migration. The values of
    one run depend on each other, for example on the first weights of the model. So the distribution may also differ
    between two runs before the migration, ``before`` and ``again``. In this case, the function does not test the values
    after the migration. Otherwise, the values must differ from both runs.
    """
    tests = []
    for role in ("train", "validation"):
        sides = [[record for record in side if record.role == role] for side in (before, again, after)]
        losses = [[float.fromhex(loss) for record in side for loss in record.losses] for side in sides]
        found = [("losses-differ", f"{role} losses", losses)]
        if batches:
            values = [
                [v for record in side for text in record.sketches for v in decode_sample_values(text)] for side in sides
            ]
            found.append(("values-differ", f"values of {role} batches", values))
        for name, what, (old, second, new) in found:
            if old and second and new and ks_p_value(old, second) >= _USUAL_P:
                text = f"the {what} have a different distribution after the migration"
                p = max(ks_p_value(old, new), ks_p_value(second, new))
                tests.append(_StatisticalTest(label, name, text, p, (len(old), len(new))))
    return tests


def _equal_randomness_tests(
    label: str, before: Sequence[LoaderPassTrace], after: Sequence[LoaderPassTrace]
) -> list[_StatisticalTest]:
    tests = []
    for relation, where in RELATIONS.items():
        counts = [[record.repeats.get(relation, (0, 0)) for record in side] for side in (before, after)]
        (total, equal), (total_after, equal_after) = (map(sum, zip(*side, strict=True)) for side in counts)
        if total and total_after:
            shares = f"{equal} of {total} pairs before, {equal_after} of {total_after} pairs after"
            name = "equal-worker-streams" if relation == "batches" else "repeated-augmentation"
            text = f"{where} were augmented with the same random numbers: {shares}"
            tests.append(_StatisticalTest(label, name, text, fisher_p_value(equal, total, equal_after, total_after)))
    return tests


def _compare_picklability(
    result: Equivalence, label: str, before: Sequence[LoaderPassTrace], after: Sequence[LoaderPassTrace]
) -> None:
    """Report the first loader of the migrated version that cannot be pickled for spawned worker processes.

    If all loaders before the migration can be pickled, the function adds a difference to ``result``. Otherwise, the
    migration is not the cause, and the function adds a note.
    """
    unpicklable = [(number, record) for number, record in enumerate(after, start=1) if record.unpicklable]
    if not unpicklable:
        return
    number, record = unpicklable[0]
    what = f"in loader pass {number}, the {record.role} loader cannot be pickled for spawned workers"
    if any(old.unpicklable for old in before):
        result.notes.append(f"{label}: {what}, before and after the migration: {record.unpicklable}")
    else:
        result.add_difference("not-picklable", label, f"{what}, after the migration only: {record.unpicklable}")


def _describe_dropped_validation(after: Sequence[LoaderPassTrace]) -> list[str]:
    """Return a list with one sentence on the first validation iteration that omits samples because of ``drop_last``.

    If no validation iteration omits samples, the list is empty.
    """
    for number, record in enumerate((r for r in after if r.role == "validation"), start=1):
        if record.drop_last and 0 <= record.samples < record.available:
            lost = record.available - record.samples
            return [f"validation pass {number} omits {lost} of {record.available} samples (drop_last)"]
    return []


def _shorten_paths(paths: set[str]) -> str:
    """Return the number of paths and the first path as text, such as ``3 values (such as result['losses'][0])``."""
    first = min(paths)
    return f"1 value ({first})" if len(paths) == 1 else f"{len(paths)} values (such as {first})"


def _short_leaf(leaves: Mapping[str, str], path: str) -> str:
    text = leaves.get(path, "missing")
    return text if len(text) <= 60 else text[:57] + "..."
