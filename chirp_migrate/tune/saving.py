"""Save the picked settings in the profile: a file that ``OptimalDataLoaderFactory`` reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chirp_migrate.tune.measured_dataset import MeasuredDataset
from chirp_migrate.tune.plateau import pick_smallest_best
from chirp_migrate.tune.tune_report import CandidateMeasurement, mean_rate
from chirpid_patch.loader_speed.profiles import loader_choice_key, read_loader_choice, save_loader_choice
from chirpid_patch.loader_speed.search import LoaderChoice, LoadingTrial
from chirpid_patch.machine.accelerator import pinning_device

_WIDEST = 10.0
"""If the upper end of a rate's interval is more than this multiple of the lower end, nothing is saved."""


def save_picked_settings(
    measured_dataset: MeasuredDataset, measurements: Sequence[CandidateMeasurement], profile: Path, thread_safe: bool
) -> str | None:
    """Save the picked settings for a loader in the profile; return None, or the reason if saving is not possible.

    For each call, ``OptimalDataLoaderFactory`` looks for an entry of the profile with the same arguments as the call.
    So the function saves an entry for calls in which ``num_workers`` is missing or 0, which count as the same call. If
    the original loader has workers, the function also saves an entry for calls with the original ``num_workers``. The
    settings in the second entry use at most the original number of workers.

    Args:
        measured_dataset: the dataset and the arguments of its loader.
        measurements: measurements of all configurations (combinations of settings), from which the function picks.
        profile: the file to which the entries are added.
        thread_safe: value of the argument ``thread_safe`` in the calls for which the entries are saved.
    """
    chosen = pick_smallest_best(measurements)
    if chosen is not None:
        rate = mean_rate(chosen.rates)
        if rate.high > _WIDEST * rate.low:
            return (
                f"{chosen.candidate} loads between {rate.low:.0f} and {rate.high:.0f} samples/s, and this range is "
                "too wide: use a longer --time-budget on a quiet machine"
            )
    for arguments in factory_arguments(measured_dataset, thread_safe):
        most = arguments["num_workers"] or math.inf
        choice = _make_loader_choice([way for way in measurements if way.candidate.num_workers <= most])
        if choice is None:
            return "a profile needs the rate of loading in the main process, which could not be measured"
        key = loader_choice_key(measured_dataset.dataset, arguments)
        save_loader_choice(profile, key, choice)
        if read_loader_choice(profile, key) != choice:
            return f"{profile} cannot be written: name another file with --profile"
    return None


def factory_arguments(measured_dataset: MeasuredDataset, thread_safe: bool) -> list[dict[str, Any]]:
    """Return the arguments of the factory calls that build a loader for the dataset.

    In the first call, ``num_workers`` is 0. In the second call, ``num_workers`` is the number in the user's own code or
    configuration file. If the user's number is 0, the result contains only the first call.
    """
    options = {**measured_dataset.options, "batch_size": measured_dataset.report.batch_size, "thread_safe": thread_safe}
    if options.get("batch_sampler") is not None:
        options = {name: value for name, value in options.items() if name not in ("batch_size", "drop_last")}
    options["pin_memory"] = pinning_device() is not None
    plain = {**options, "num_workers": 0}
    asked = measured_dataset.asked_workers
    return [plain, {**options, "num_workers": asked}] if asked else [plain]


def _make_loader_choice(measured: Sequence[CandidateMeasurement]) -> LoaderChoice | None:
    """Return the picked settings as an entry of a profile.

    The result is None if all configurations failed, or if loading in the main process was not measured.
    """
    chosen = pick_smallest_best(measured)
    trials: dict[tuple[int, int], LoadingTrial] = {}
    for way in sorted(measured, key=lambda way: (way is not chosen, way.candidate.size)):
        at_once = way.candidate.num_workers, way.candidate.prefetch_threads
        if way.rates and at_once not in trials:
            trials[at_once] = LoadingTrial(*at_once, mean_rate(way.rates).value, way.first_batch_s[0])
    if chosen is None or (0, 0) not in trials:
        return None
    ordered = sorted(trials.values(), key=lambda trial: (trial.num_workers, trial.prefetch_threads))
    picked = chosen.candidate
    return LoaderChoice(picked.num_workers, picked.prefetch_threads, tuple(ordered), (), picked.prefetch_factor)
