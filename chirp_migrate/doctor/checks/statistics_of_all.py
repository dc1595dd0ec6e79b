"""Find samples that were scaled with the statistics of training and validation samples together."""

from __future__ import annotations

from collections.abc import Iterator

from chirp_migrate.console.text import pluralize
from chirp_migrate.doctor.doctor_report import Problem
from chirp_migrate.doctor.recording import LoaderInfo, LoaderPass, Recording, ValueSums

_EXACT_MEAN, _EXACT_DEVIATION = 2e-4, 1e-3
"""In standardized float32 samples, the largest distance of the mean from 0 and of the standard deviation from 1."""
_CLEARLY = 5e-3
"""A statistic clearly differs from 0 or 1 if the difference is larger than this value."""
_LEAST_SAMPLES = 8
_LEAST_COLUMNS, _EXACT_END = 3, 1e-6


def check(recording: Recording) -> Iterator[Problem]:
    """Compute statistics of the training samples alone, and of training and validation samples together.

    The check reports a problem if all samples together are standardized, but the training samples alone are not
    standardized. Samples are standardized if their values have mean 0 and standard deviation 1, either in every column
    or channel, or over all columns and channels together. The check also reports a problem if the values of all samples
    together have the range from 0 to 1 in every column, but the training samples alone have a smaller range in at least
    one column. The check skips epochs that ended early, and epochs in which a sample was read twice or not recorded.
    """
    training: tuple[LoaderInfo, LoaderPass, ValueSums] | None = None
    for one in recording.passes:
        loader = recording.loaders[one.loader]
        moments = _moments(recording, loader, one)
        if one.trains:
            training = None if moments is None else (loader, one, moments)
        elif one.evaluates and training is not None and moments is not None:
            other = training[2]
            if len(other.sums) != len(moments.sums):
                continue
            both, evidence = other + moments, ""
            all_samples = f"All {sum(training[1].sizes) + sum(one.sizes)} samples together"
            if _is_standardized(both) and _is_not_standardized(other):
                mean, deviation = max(other.means_and_deviations(), key=lambda pair: abs(pair[0]) + abs(pair[1] - 1))
                evidence = (
                    f"{all_samples} have mean 0 and standard deviation 1, but the training samples alone have mean "
                    f"{mean:.3f} and standard deviation {deviation:.3f}."
                )
            elif _is_scaled(both) and (inside := _count_columns_inside(other)):
                columns = pluralize(inside, "column")
                evidence = (
                    f"{all_samples} have the range 0 to 1 in every column, but in {columns} the training samples alone "
                    "have a smaller range."
                )
            if evidence:
                yield Problem.at(
                    training[0].place,
                    "statistics-of-all",
                    "Samples are scaled with statistics of training and validation samples together.",
                    f"{evidence} The validation samples come from {loader}.",
                    "Split the data first, and then compute the statistics from the training samples alone.",
                )
                return


def _moments(seen: Recording, loader: LoaderInfo, one: LoaderPass) -> ValueSums | None:
    """Return the sum, the sum of squares and the number of the values of all samples of an epoch.

    The result is None if the epoch ended early, has fewer than 8 samples, or has a sample that was read twice or not
    recorded. The result is also None for iterable datasets.
    """
    tasks = seen.tasks_of(one)
    indices = [index for task in tasks for index in task.indices]
    if not one.is_complete or not len(indices) == len(set(indices)) == sum(one.sizes) or loader.is_stream:
        return None
    total: ValueSums | None = None
    for each in (task.moments for task in tasks):
        if each is None or (total is not None and len(each.sums) != len(total.sums)):
            return None
        total = each if total is None else total + each
    return total if len(indices) >= _LEAST_SAMPLES else None


def _is_standardized(moments: ValueSums) -> bool:
    """Return whether samples are standardized: their mean is nearly 0, and their standard deviation is nearly 1.

    The result is True if this holds in every column or channel. The result is also True if this holds for all values
    together.
    """
    return any(
        figures
        and all(abs(mean) < _EXACT_MEAN and abs(deviation - 1) < _EXACT_DEVIATION for mean, deviation in figures)
        for figures in (one.means_and_deviations(less) for one in (moments, moments.whole) for less in (0, 1))
    )


def _is_scaled(moments: ValueSums) -> bool:
    """Return whether the minimum is 0 and the maximum is 1 in each column, up to rounding errors."""
    return len(moments.lows) >= _LEAST_COLUMNS and all(
        abs(low) < _EXACT_END and abs(high - 1) < _EXACT_END
        for low, high in zip(moments.lows, moments.highs, strict=True)
    )


def _count_columns_inside(moments: ValueSums) -> int:
    """Return the number of columns whose minimum is clearly above 0, or whose maximum is clearly below 1."""
    ends = zip(moments.lows, moments.highs, strict=True)
    return sum(_CLEARLY < low < 1 - _CLEARLY or _CLEARLY < high < 1 - _CLEARLY for low, high in ends)


def _is_not_standardized(moments: ValueSums) -> bool:
    return all(
        any(abs(mean) > _CLEARLY or abs(deviation - 1) > _CLEARLY for mean, deviation in one.means_and_deviations())
        for one in (moments, moments.whole)
    )
