"""Before anything is timed: which entry points train at all, and how long will all of it take?

The entry points are trained briefly on both sides, while there is time. What fails before the migration is left out,
and has to fail the same way after it. From how long the others took follows how much of the training fits into the
budget: epochs are taken away first, then samples, then entry points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from chirp_migrate.console.progress import Progress
from chirp_migrate.stats.sequential_looks import MIN_ROUNDS
from chirp_migrate.training.process.run_child import workload_failed
from chirp_migrate.training.workload.entry_points import Discovery, Sizes, Source
from chirp_migrate.verify.equivalence.compare import Equivalence
from chirp_migrate.verify.equivalence.first_difference import OTHER_SEEDS
from chirp_migrate.verify.options import LEAST_SAMPLES, VerifyOptions
from chirp_migrate.verify.spec import Tried
from chirp_migrate.verify.timing.children import Children

__all__ = ["Trial", "fitted", "fitting", "try_out"]

#: Watching what a training loads makes it so much longer (measured on the fixtures, where loading is most of it).
_WATCHED = 1.5
_LEAST_EPOCHS = 2


@dataclass(frozen=True)
class Trial:
    """What brief trainings showed; nothing where there were none.

    Attributes:
        failing: label of each entry point that fails on both sides → its error before the migration.
        tried: side → entry point → what a brief training showed.
        start_s: seconds that starting the processes of a round, and importing what they train, takes.
        difference: entry points that fail before the migration, and otherwise or not at all after it.
        no_room: labels of the entry points that the budget has no room for.
    """

    failing: Mapping[str, str] = field(default_factory=dict)
    tried: Mapping[str, Mapping[str, Tried]] = field(default_factory=dict)
    start_s: float = 0.0
    difference: Equivalence = field(default_factory=Equivalence)
    no_room: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The entry points that are verified, in the order in which they run."""
        return tuple(one for one in self.tried["before"] if one not in self.failing and one not in self.no_room)

    def expected_s(self, settings: VerifyOptions) -> float:
        """Seconds that watching both sides and the fewest rounds will take; the trial is not in it.

        A process warms up by one short training of each entry point. One that watches also makes one for each other
        seed, and trains twice: to see what is loaded, and with clocks. In a round the side after also trains from
        cached batches, which takes no longer than its training.
        Its datasets are tried in workers, which the side before has no need of.
        """
        working = {side: [tried[label] for label in self.labels] for side, tried in self.tried.items()}
        short = {side: sum(one.seconds[0] for one in tried) for side, tried in working.items()}
        whole = {side: sum(one.expected_s(settings.sizes) for one in tried) for side, tried in working.items()}
        start_s = self.start_s + sum(one.first_s for tried in working.values() for one in tried)
        watching = start_s + sum(len(OTHER_SEEDS) * short[side] + (_WATCHED + 1) * whole[side] for side in whole)
        rounds = MIN_ROUNDS * (start_s + whole["before"] + 2 * whole["after"])
        return watching + rounds + settings.extra_s


def try_out(children: Children, discovery: Discovery, progress: Progress) -> Trial:
    """Try the entry points on both sides.

    A command is not tried, which would be run as a whole, nor an only call of a workload, which all depends on.

    Raises:
        WorkloadFailed: an entry point fails after the migration only, or every one before it.
    """
    only = discovery.source is Source.HOOK and len(discovery.entry_points) == 1
    if only or discovery.source is Source.COMMAND:
        return Trial()
    progress("trying each entry point briefly on both sides")
    results, ready_s = children.trial()
    sides = {side: result.tried for side, result in results.items()}
    reached = [label for label in sides["before"] if label in sides["after"]]
    before, after = ({label: sides[side][label] for label in reached} for side in ("before", "after"))
    broken = [label for label, one in after.items() if one.error and not before[label].error]
    if broken:
        label = broken[0]
        raise workload_failed(f"The after side failed: {_raised(label, after)}.", after[label].printed, "after")
    failing = {label: one.error for label, one in before.items() if one.error}
    if len(failing) == len(before):
        label = next(iter(failing))
        others = " (so do all others)" if len(failing) > 1 else ""
        raise workload_failed(
            f"The before side failed: {_raised(label, before)}{others}.", before[label].printed, "before"
        )
    difference = Equivalence()
    for label, error in failing.items():
        difference.notes.append(f"{label}: left out: it fails before the migration, too, with {error}")
        if after[label].error != error:
            now = after[label].error or "nothing"
            difference.differs("error-differs", label, f"raises {error} before, {now} after")
    no_room = tuple(entry.label for entry in discovery.entry_points if entry.label not in before)
    return Trial(failing, {"before": before, "after": after}, ready_s, difference, no_room)


def _raised(label: str, tried: Mapping[str, Tried]) -> str:
    return f"{label} raised {tried[label].error}"


def fitting(trial: Trial, settings: VerifyOptions, left_s: float) -> tuple[Sizes, Trial]:
    """As much of the training as fits into so many seconds: fewer epochs, then fewer samples, then entry points."""
    sizes = settings.sizes
    for epochs in range(sizes.epochs, min(sizes.epochs, _LEAST_EPOCHS) - 1, -1):
        sizes = replace(sizes, epochs=epochs)
        if trial.expected_s(replace(settings, sizes=sizes)) <= left_s:
            return sizes, trial
    while sizes.samples > LEAST_SAMPLES and trial.expected_s(replace(settings, sizes=sizes)) > left_s:
        sizes = replace(sizes, samples=max(LEAST_SAMPLES, sizes.samples * 4 // 5))
    while len(trial.labels) > 1 and trial.expected_s(replace(settings, sizes=sizes)) > left_s:
        trial = replace(trial, no_room=(trial.labels[-1], *trial.no_room))
    return sizes, trial


def fitted(options: VerifyOptions, trial: Trial, left_s: float, progress: Progress) -> tuple[VerifyOptions, Trial]:
    """Options and trial whose training fits into the seconds left; the trial has a note where it had to be reduced."""
    asked, of = options.sizes, len(trial.labels) + len(trial.no_room)
    sizes, trial = fitting(trial, options, left_s)
    options = replace(options, sizes=sizes)
    expected = f"watching and {MIN_ROUNDS} rounds will take about {trial.expected_s(options):.0f} s"
    if sizes == asked and not trial.no_room:
        seconds = trial.expected_s(options)
        if seconds > left_s:
            progress(f"{expected}, the least there is: more than the budget of {options.budget_s:.0f} s has room for")
        else:
            progress(f"{expected}; rounds go on until the verdict is settled, at most to {left_s:.0f} s from now")
        return options, trial
    reduced = f"{sizes.epochs} of {asked.epochs} epochs and {sizes.samples} of {asked.samples} samples"
    if trial.no_room:
        reduced += f" in {len(trial.labels)} of {of} entry points"
    few = f"a budget of {options.budget_s:.0f} s has no room for all (see --time-budget)"
    progress(f"{expected}, with {reduced}: {few}")
    left_out = f", which left out {', '.join(trial.no_room)} (see -k)" if trial.no_room else ""
    note = f"trained {reduced}, to keep to the budget of {options.budget_s:.0f} s{left_out}"
    return options, replace(trial, difference=trial.difference.joined(Equivalence(notes=[note])))
