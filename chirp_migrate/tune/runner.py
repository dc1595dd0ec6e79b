"""Run the user's code and measure its loaders, in a child process of ``tune``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from chirp_migrate import __version__
from chirp_migrate.console.progress import Progress, ProgressStep
from chirp_migrate.console.text import shorten_list
from chirp_migrate.training.errors import UserCodeError, wrap_user_code_errors
from chirp_migrate.training.process import machine
from chirp_migrate.training.process.imports import check_imports_use_copy
from chirp_migrate.training.process.inside_child import ParentConnection, run_child_task
from chirp_migrate.training.process.protocol import PartialResult
from chirp_migrate.training.watch.nested_datasets import unaugmented_dataset
from chirp_migrate.training.watch.samples import LONGEST_S, has_random_samples
from chirp_migrate.training.workload.calls import data_for_entry_points, load_model, prepare_call, seed_everything
from chirp_migrate.training.workload.entry_points import TrainingSource
from chirp_migrate.training.workload.hook import names_of_training_calls
from chirp_migrate.tune.measured_dataset import MeasuredDataset
from chirp_migrate.tune.plateau import pick_smallest_best
from chirp_migrate.tune.recommend import add_recommendations
from chirp_migrate.tune.request import TuneTask
from chirp_migrate.tune.saving import save_picked_settings
from chirp_migrate.tune.sources import build_dataset_from_config, build_dataset_from_reference
from chirp_migrate.tune.sweep import SettingsSweep, measure_settings, setting_combinations
from chirp_migrate.tune.tune_report import (
    CandidateMeasurement,
    CandidateSettings,
    LoaderReport,
    TrainingRun,
    TuneReport,
)
from chirp_migrate.tune.watching import watch_loaders
from chirpid_patch.datasets.collate import is_stacking_collate
from chirpid_patch.datasets.gather import is_in_memory
from chirpid_patch.machine.cpus import usable_cpus
from chirpid_patch.speed_comparison import order_of_round

_FOR_AUGMENTATION = 0.15
_AUGMENTATION_ROUNDS = 5
_AUGMENTATION_SLICE_S = 0.2
_FOR_BATCH_SIZES = 0.25
_SEED = 435
_LEAST_S = 1.0


def run(
    request: TuneTask, progress: Progress, before_entry_point: Callable[[str, int], None] = lambda _label, _others: None
) -> TuneReport:
    """Measure loader settings for each dataset or loader of the task, and return results with recommendations.

    The recommendation on GPU use, which applies to the whole training, is only in the report on the first loader.

    Args:
        request: the task.
        progress: function that is called with progress messages.
        before_entry_point: function that is called before each entry point (training function or script) runs. Its
            first argument is the label (short unique name) of the entry point. Its second argument is the number of the
            other entry points. If this number is 0, the parent process does not skip an entry point that crashes, but
            raises an error. After all entry points, before the measurement, the function is called once more with
            ``("", 0)``, so that the parent process can start a new time limit.

    Raises:
        TaskNotPossible: the requested dataset or training cannot be measured.
        UserCodeError: the user's code raised an error.
    """
    seed_everything(_SEED)
    ends_at = request.ends_at or time.time() + request.grid.seconds
    subjects, training, notes = _find_subjects(
        request, progress, before_entry_point, max(_LEAST_S, ends_at - time.time())
    )
    before_entry_point("", 0)
    loaders: list[LoaderReport] = []
    for number, subject in enumerate(subjects):
        if loaders and request.discovery and time.time() > ends_at:
            names = shorten_list([one.report.name for one in subjects[number:]], 4)
            notes.append(f"not measured, because the time budget was used up: {names}")
            break
        seed_everything(_SEED)
        left_s = max(_LEAST_S, ends_at - time.time())
        progress(ProgressStep("measuring", most_s=left_s))
        try:
            with wrap_user_code_errors(f"reading a batch of {subject.report.name}"):
                report = _measure_dataset(subject, request, left_s / (len(subjects) - number), progress)
        except UserCodeError as raised:
            if not loaders and number == len(subjects) - 1:
                raise
            notes.append(f"{subject.report.name} was not measured: {raised}")
            continue
        add_recommendations(report, None if loaders else training)
        loaders.append(report)
    if training is None and torch.cuda.is_available():
        notes.append("no training ran, so the GPU use was not measured: pass --workload")
    here = machine.describe_machine(usable_cpus())
    return TuneReport(
        tool=f"chirp-migrate {__version__}",
        loaders=loaders,
        training=training,
        notes=notes,
        machine=here,
        described=machine.machine_summary(here),
    )


def _find_subjects(
    request: TuneTask, show: Progress, begin: Callable[[str, int], None], seconds: float
) -> tuple[list[MeasuredDataset], TrainingRun | None, list[str]]:
    """Return the datasets to measure, the training that ran (None without a training), and notes for the report."""
    if request.dataset:
        subject = build_dataset_from_reference(
            request.dataset, request.unaugmented, request.config, request.uses_runtime
        )
        return [subject], None, []
    if request.config is not None:
        return [build_dataset_from_config(Path(request.tree), request.config, request.uses_runtime)], None, []
    assert request.discovery is not None, "a task must have a dataset, a configuration file or entry points"
    entries = request.discovery.entry_points
    with wrap_user_code_errors("the training"):
        if entries[0].source is TrainingSource.HOOK and not entries[0].name:
            names = names_of_training_calls(entries[0].hook, request.sizes)
            entries = tuple(replace(entries[0], name=name) for name in names)
        model = load_model(request.discovery.model)
        data = data_for_entry_points(entries, request.sizes)
    # At least two epochs, because `tune` ends a training call when its second epoch begins.
    sizes = replace(request.sizes, epochs=max(2, request.sizes.epochs))
    calls = {
        entry.label: partial(prepare_call, entry, model, data, sizes)
        for entry in entries
        if entry.label not in request.lost
    }

    def begin_in_project(label: str) -> None:
        os.chdir(request.tree)  # the previous entry point may have changed the working directory
        begin(label, len(calls) - 1)

    subjects, training, notes = watch_loaders(calls, show, seconds, begin_in_project)
    check_imports_use_copy(Path(request.tree), request.discovery.origin)
    lost = [f"skipped an entry point that does not train: {label} {how}" for label, how in request.lost.items()]
    return subjects, training, lost + notes


def _measure_dataset(subject: MeasuredDataset, request: TuneTask, seconds: float, show: Progress) -> LoaderReport:
    wanted = request.grid
    report, batch_size = subject.report, subject.report.batch_size
    if wanted.migrated is not None:
        report.migrated = wanted.migrated
    if not report.migrated and report.now is not None and report.now.prefetch_threads:
        report.now = None  # PyTorch's loader has no prefetching threads, so these settings cannot be measured
    show(f"measuring {report.name}, batch size {batch_size}, {report.samples} samples")
    show(ProgressStep("with and without augmentation"))
    shown = _measure_augmentation(subject, seconds * _FOR_AUGMENTATION)
    report.with_s, report.without_s, report.not_augmented = shown
    threads = _thread_counts(subject, wanted.thread_safe) if report.migrated else ()
    candidates = setting_combinations(wanted.workers, wanted.prefetch, threads, batch_size, report.now)
    sizes = [size for size in wanted.batch_sizes if size != batch_size and batch_size is not None]
    share = 1 - _FOR_AUGMENTATION - (_FOR_BATCH_SIZES if sizes else 0)
    sweep = SettingsSweep(subject, candidates, seconds * share, show, is_limited=request.discovery is not None)
    report.measured = sweep.run()
    report.rounds, report.cpu_share, report.others = sweep.rounds, sweep.cpu_share, sweep.others
    chosen = pick_smallest_best(report.measured)
    if chosen is not None and sizes:
        report.batch_sizes = _measure_batch_sizes(subject, chosen.candidate, sizes, seconds * _FOR_BATCH_SIZES, show)
    if request.profile and report.migrated:
        report.not_saved = save_picked_settings(subject, report.measured, Path(request.profile), wanted.thread_safe)
        report.saved = request.profile if report.not_saved is None else None
    elif request.profile:
        report.not_saved = "tune measured PyTorch's loader, but a profile is for chirpid_patch's loader (see --loader)"
    return report


def _measure_augmentation(subject: MeasuredDataset, seconds: float) -> tuple[list[float], list[float], str | None]:
    """Measure how long a batch takes with and without augmentation.

    The function measures both times up to five times. After ``seconds`` seconds, no further measurement begins, but the
    first measurement always runs.

    Returns:
        Three values: the list of all measured seconds per batch with augmentation, the list without augmentation, and
        None. If augmentation cannot be measured, the lists are empty, and the third value is the reason.
    """
    if subject.options.get("batch_sampler") is not None:
        return [], [], "the batch sampler may yield indices that the unaugmented dataset does not have"
    plain = subject.unaugmented
    if plain is None:
        is_random = has_random_samples(subject.dataset, subject.collate, LONGEST_S)
        if is_random is None:
            return [], [], "the samples of the dataset cannot be read by index"
        if not is_random:
            return [], [], "the dataset does not augment, because its samples are the same each time they are read"
        plain = unaugmented_dataset(subject.dataset, subject.collate)
    if plain is None:
        why = "tune found no dataset with the same samples without augmentation: pass --unaugmented MODULE:CALLABLE"
        return [], [], why
    way = CandidateSettings(0, batch_size=subject.report.batch_size)

    until = time.monotonic() + seconds
    with_s: list[float] = []
    without_s: list[float] = []
    for number in range(_AUGMENTATION_ROUNDS):
        for taken, side in order_of_round([(with_s, subject), (without_s, replace(subject, dataset=plain))], number):
            rate = measure_settings(side, way, _AUGMENTATION_SLICE_S)
            taken.append(rate.seconds / rate.batches)
        if time.monotonic() > until:
            break
    return with_s, without_s, None


def _measure_batch_sizes(
    subject: MeasuredDataset, chosen: CandidateSettings, sizes: list[int], seconds: float, show: Progress
) -> list[CandidateMeasurement]:
    """Measure the picked settings with the batch size of the training and with each batch size in ``sizes``."""
    ways = [replace(chosen, batch_size=size) for size in (subject.report.batch_size, *sizes)]
    show(f"{chosen} at batch sizes {', '.join(str(way.batch_size) for way in ways)}")
    return SettingsSweep(subject, ways, seconds, show).run()


def _thread_counts(subject: MeasuredDataset, thread_safe: bool) -> tuple[int, ...]:
    """Return the numbers of prefetching threads to measure.

    The result is empty unless ``thread_safe`` is True, or all samples are in memory and the ``collate_fn`` only stacks
    samples.
    """
    if not thread_safe and not (is_in_memory(subject.dataset) and is_stacking_collate(subject.collate)):
        return ()
    most = usable_cpus()
    return tuple(sorted({1, min(2, most), most}))


def _run_in_child(request: TuneTask, parent: ParentConnection) -> TuneReport:
    def begin(label: str, others: int) -> None:
        parent.send(PartialResult(label, others))
        parent.wait_for_turn()

    return run(request, parent.show, begin)


if __name__ == "__main__":
    sys.exit(run_child_task(TuneTask, _run_in_child))
