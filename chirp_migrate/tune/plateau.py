"""Pick a configuration (a combination of loader settings) from measured rates, by the rule in docs/tune.md.

The best configuration has the highest mean rate, in samples per second. The ratio of a configuration is its rate
divided by the rate of the best configuration. Each round yields one ratio, and the mean ratio is the geometric mean
over all rounds, with an interval from Student's t-distribution. A configuration is tied with the best configuration if
its mean ratio is at least 0.95.

The pick is the smallest of the tied configurations and the best configuration. The smallest configuration has the
fewest worker processes. Between configurations with equally many worker processes, the number of threads decides, and
then the number of batches that are loaded ahead. Rounds continue until the pick is unlikely to change, or time is up.
The pick is unlikely to change if two conditions hold. First, the interval of the pick and of each smaller configuration
does not contain 0.95. Second, even the upper end of the interval of each larger configuration is too low to make this
configuration the pick.
"""

from __future__ import annotations

from collections.abc import Sequence

from chirp_migrate.stats.ratios import Ratio, paired_ratio
from chirp_migrate.tune.tune_report import CandidateMeasurement, CandidateSettings, SettingsComparison, SettingsOutcome

TOLERANCE = 0.05
"""A configuration is tied with the best configuration if its throughput is lower by at most this share."""

_CONFIDENCE = 0.95


def mean_rate(rates: Sequence[float]) -> Ratio:
    """Return the geometric mean of rates, with its interval. For a single rate, the interval has no width.

    Raises:
        ValueError: there are no rates, or a rate is not positive.
    """
    if not rates or min(rates) <= 0:
        raise ValueError("a mean rate needs at least one rate, and all rates must be positive")
    if len(rates) == 1:
        return Ratio(rates[0], rates[0], rates[0], 1)
    return paired_ratio([1.0] * len(rates), rates, _CONFIDENCE)


def mean_rates(measured: Sequence[CandidateMeasurement]) -> dict[CandidateSettings, Ratio]:
    """Return a dictionary: configuration → its mean rate in samples per second, without failed configurations."""
    return {
        configuration.candidate: mean_rate(configuration.rates) for configuration in measured if configuration.rates
    }


def compare_with_best(measured: Sequence[CandidateMeasurement]) -> list[SettingsComparison]:
    """Compare each configuration with the best configuration. The results have the same order as ``measured``.

    If a configuration was measured only in the first rounds, it cannot be the best configuration, and only these rounds
    are compared.
    """
    rounds = max((len(configuration.rates) for configuration in measured), default=0)
    to_the_end = [configuration for configuration in measured if 0 < len(configuration.rates) == rounds]
    best = max(to_the_end, key=lambda configuration: mean_rate(configuration.rates).value, default=None)
    return [_compare(configuration, best) for configuration in measured]


def _compare(configuration: CandidateMeasurement, best: CandidateMeasurement | None) -> SettingsComparison:
    rates, candidate = configuration.rates, configuration.candidate
    if best is None or not rates:
        return SettingsComparison(configuration=str(candidate), outcome=SettingsOutcome.FAILED, conclusive=True)
    rate, ratio = mean_rate(rates), None
    rounds = min(len(rates), len(best.rates))
    bound = 1 - TOLERANCE
    if configuration is best:
        outcome, conclusive = SettingsOutcome.BEST, True
    elif rounds < 2:
        outcome, conclusive = (
            SettingsOutcome.TIED if rates[0] >= bound * best.rates[0] else SettingsOutcome.BELOW,
            False,
        )
    else:
        ratio = paired_ratio(best.rates[:rounds], rates[:rounds], _CONFIDENCE)
        outcome = SettingsOutcome.TIED if ratio.value >= bound else SettingsOutcome.BELOW
        conclusive = ratio.low >= bound or ratio.high < bound
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
    """Return the smallest configuration that is the best or tied with the best; None if all configurations failed."""
    placed = zip(measured, compare_with_best(measured), strict=True)
    tied = [
        configuration
        for configuration, comparison in placed
        if comparison.outcome in (SettingsOutcome.BEST, SettingsOutcome.TIED)
    ]
    return min(tied, key=lambda configuration: configuration.candidate.size, default=None)


def is_pick_conclusive(measured: Sequence[CandidateMeasurement]) -> bool:
    """Return whether more rounds are unlikely to change the picked configuration."""
    chosen = pick_smallest_best(measured)
    return chosen is None or all(
        comparison.conclusive
        or (configuration.candidate.size > chosen.candidate.size and not _may_be_much_faster(comparison))
        for configuration, comparison in zip(measured, compare_with_best(measured), strict=True)
    )


def _may_be_much_faster(comparison: SettingsComparison) -> bool:
    """Return whether a configuration may be so fast that the present pick would no longer be tied with the best."""
    return comparison.ratio_to_best_interval is None or comparison.ratio_to_best_interval[1] >= 1 / (1 - TOLERANCE)
