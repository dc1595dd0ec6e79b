"""Pick a configuration (a combination of loader settings) from measured rates, by the rule in docs/tune.md.

The best configuration has the highest mean rate, in samples per second. The ratio of a configuration is its rate
divided by the rate of the best configuration. ``tune`` measures configurations in rounds, and each round yields one
ratio for each measured configuration. The mean ratio of a configuration is the geometric mean of its ratios over all
rounds, with a 95 % interval from Student's t-distribution. A configuration is tied with the best configuration if its
mean ratio is at least 0.95.

``tune`` picks the smallest tied configuration. The best configuration counts as tied, too. The smallest configuration
has the fewest worker processes. If two configurations have equally many worker processes, the configuration with fewer
threads is smaller. If the threads are equally many, too, the configuration that loads fewer batches ahead is smaller.

Rounds continue until the pick is unlikely to change, or the time is up. The pick is unlikely to change if two
conditions hold. First, the interval of the pick and of each smaller configuration does not contain 0.95. Second, the
interval of each larger configuration does not contain 0.95, or its upper end is below 1 / 0.95. Then no larger
configuration is likely to become so fast that the pick is more than 5 % slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from chirp_migrate.stats.ratios import paired_ratio
from chirp_migrate.tune.tune_report import CandidateMeasurement, SettingsComparison, SettingsOutcome, mean_rate
from chirpid_patch.speed_comparison import compare_speeds
from chirpid_patch.thresholds import TIED


def compare_with_best(measured: Sequence[CandidateMeasurement]) -> list[SettingsComparison]:
    """Compare each configuration (combination of loader settings) with the best configuration.

    The results have the same order as ``measured``.

    The first rounds of the measurement measure all configurations, and later rounds omit configurations that are too
    slow. An omitted configuration cannot be the best configuration. The function compares an omitted configuration with
    the best configuration only in the rounds that measured both.
    """
    compared = compare_speeds([configuration.rates for configuration in measured])
    best = None if compared.fastest is None else measured[compared.fastest]
    return [_describe(configuration, best, tied) for configuration, tied in zip(measured, compared.tied, strict=True)]


def _describe(configuration: CandidateMeasurement, best: CandidateMeasurement | None, tied: bool) -> SettingsComparison:
    rates, candidate = configuration.rates, configuration.candidate
    if best is None or not rates:
        return SettingsComparison(configuration=str(candidate), outcome=SettingsOutcome.FAILED, conclusive=True)
    rate, ratio, conclusive = mean_rate(rates), None, configuration is best
    outcome = SettingsOutcome.BEST if conclusive else SettingsOutcome.TIED if tied else SettingsOutcome.BELOW
    if configuration is not best and len(rates) > 1:
        ratio = paired_ratio(best.rates[: len(rates)], rates)
        conclusive = ratio.low >= 1 - TIED or ratio.high < 1 - TIED
    return SettingsComparison(
        configuration=str(candidate),
        outcome=outcome,
        conclusive=conclusive,
        samples_per_s=rate.value,
        interval=None if rate.rounds < 2 else (rate.low, rate.high),
        batches_per_s=rate.value / candidate.batch_size if candidate.batch_size else None,
        ratio_to_best=None if ratio is None else ratio.value,
        ratio_to_best_interval=None if ratio is None else (ratio.low, ratio.high),
    )


def pick_smallest_best(measured: Sequence[CandidateMeasurement]) -> CandidateMeasurement | None:
    """Return the smallest configuration that is at most 5 % slower than the best configuration; None if all failed."""
    tied = compare_speeds([configuration.rates for configuration in measured]).tied
    return min(compress(measured, tied), key=lambda configuration: configuration.candidate.size, default=None)


def is_pick_conclusive(measured: Sequence[CandidateMeasurement]) -> bool:
    """Return whether more measurements are unlikely to change the picked configuration."""
    chosen = pick_smallest_best(measured)
    return chosen is None or all(
        comparison.conclusive
        or (configuration.candidate.size > chosen.candidate.size and not _may_be_much_faster(comparison))
        for configuration, comparison in zip(measured, compare_with_best(measured), strict=True)
    )


def _may_be_much_faster(comparison: SettingsComparison) -> bool:
    """Return whether a configuration may be so fast that more measurements could change the pick."""
    return comparison.ratio_to_best_interval is None or comparison.ratio_to_best_interval[1] >= 1 / (1 - TIED)
