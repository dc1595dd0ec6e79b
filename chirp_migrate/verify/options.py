"""Options of ``verify``: the command line overrides the project's settings, which override the defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from chirp_migrate.errors import UsageProblem
from chirp_migrate.training.errors import NoTrainingFound
from chirp_migrate.training.workload.entry_points import (
    DEFAULT_WORKLOAD,
    DiscoveredEntryPoints,
    EntryPoint,
    TrainingSource,
    WorkloadSizes,
    find_entry_points,
)
from chirp_migrate.training.workload.hook import workload_file_candidates
from chirp_migrate.training.workload.script import script_of_command

MARGIN = 0.05
"""An entry point counts as slower if its time after the migration exceeds its time before by more than this share."""

LEAST_SAMPLES = 48
"""Smallest number of samples for entry points that ``verify`` finds automatically.

These entry points split the samples into training and validation samples.
"""

_VERY_BUSY = 0.6
"""If other processes use more than this share of the CPUs, ``verify`` times half as many samples."""

_SIZES = WorkloadSizes()


@dataclass(frozen=True)
class VerifyOptions:
    """The options of a verification; see ``chirp-migrate verify --help``.

    Attributes:
        sizes: numbers of samples, epochs and folds, and the path of the user's data.
        entry: the user's workload function or script that runs the training; None if ``verify`` finds the entry points
            automatically.
        model: class of the model, as ``module:ClassName``; None for the model that ``verify`` finds automatically.
        max_rounds: largest number of rounds. In each round, one new process for each version trains.
        budget_s: seconds for the whole verification, from the start of the command.
        threshold_percent: percent of the training time that the migration must save for the verdict "faster".
        margin_percent: by how many percent the time of an entry point may increase after the migration. An entry point
            with a larger increase counts as slower.
        threads: number of compute threads of each version; 0 for one thread on each usable CPU that no other process
            uses.
        timeout_s: seconds that a process, or the timing of one entry point, may take. After this time, ``verify`` ends
            the process as hung.
        strict: whether the verdict "faster" also requires timings that prove that no entry point is slower. If False
            (the default), an entry point whose timings prove nothing does not change the verdict.
        own_epochs: number of epochs of the full training that the user would run; None for the default of each entry
            point.
        select: expression that selects entry points by their labels, as with ``pytest -k``; None for all.
        simulate_step_ms: milliseconds of a simulated device step for each training batch; 0 for no step.
        may_halve: whether ``verify`` may time half as many samples on a very busy machine; False if the user chose the
            number of samples.
    """

    sizes: WorkloadSizes = _SIZES
    entry: EntryPoint | None = None
    model: str | None = None
    max_rounds: int = 12
    budget_s: float = 180.0
    threshold_percent: float = 20.0
    threads: int = 0
    timeout_s: float = 600.0
    strict: bool = False
    own_epochs: int | None = None
    select: str | None = None
    margin_percent: float = 100 * MARGIN
    simulate_step_ms: float = 0.0
    may_halve: bool = False

    def sizes_for_timing(self, others: float) -> WorkloadSizes:
        """Return the sizes of the timed training, with half as many samples if other processes use many CPUs.

        Args:
            others: share of the CPUs that other processes use, 0 to 1.
        """
        if not self.may_halve or others <= _VERY_BUSY:
            return self.sizes
        return replace(self.sizes, samples=max(LEAST_SAMPLES, self.sizes.samples // 2))

    @property
    def source(self) -> TrainingSource:
        """Return what defines the training: the project's source, a workload function or a script."""
        return TrainingSource.FOUND if self.entry is None else self.entry.source

    @property
    def threshold(self) -> float:
        """Return the share of the training time that the migration must save for the verdict "faster", 0 to 1."""
        return self.threshold_percent / 100

    @property
    def margin(self) -> float:
        """Return the share of the original time by which an entry point may become slower, such as 0.05."""
        return self.margin_percent / 100


def resolve_options(root: Path, given_options: Mapping[str, Any]) -> VerifyOptions:
    """Return the options for a verification of ``root``.

    Args:
        root: folder of the project.
        given_options: dictionary, name of an option → value. The names are the fields of :class:`VerifyOptions` and
            :class:`.WorkloadSizes`. The additional names ``workload`` (such as ``file.py:function``) and ``script``
            define the field ``entry``. Without these two names, the file ``chirp_verify.py`` in ``root`` defines
            ``entry``, if the file exists. All other options that are not in the dictionary have their defaults, so the
            caller must add the project's settings to the dictionary.

    Raises:
        UsageProblem: two options contradict each other, an option would have no effect, or ``data`` cannot be used.
    """
    if "script" in given_options and {"workload", "data", "model"} & given_options.keys():
        raise UsageProblem("the command after -- defines the whole training: omit --workload, --data and --model.")
    entry = _entry_of_options(root, given_options)
    if entry is not None and "model" in given_options:
        raise UsageProblem(
            "the option model applies to entry points that are found automatically, but here a workload function or "
            "a script defines the training: omit model."
        )
    own = {one.name: given_options[one.name] for one in fields(VerifyOptions) if one.name in given_options}
    if entry is not None and own.get("own_epochs"):
        entry = _with_epochs(entry, own["own_epochs"])
    return VerifyOptions(
        _sizes_of_options(given_options, entry), entry, **own, may_halve="samples" not in given_options
    )


def entry_points_from_options(
    tree: Path, root: Path, options: VerifyOptions, command: str = "verify"
) -> DiscoveredEntryPoints:
    """Return the entry points of a project.

    If the user has a workload function, the result has one entry point, which stands for the workload function. The
    result does not list the training calls that the workload function returns, because only a child process calls the
    workload function.

    Args:
        tree: folder in which to find the training, which is ``root`` or a copy of ``root``.
        root: folder of the user's project.
        options: the options of the verification.
        command: name of the calling command for messages, such as ``verify`` or ``tune``.

    Raises:
        NoTrainingFound: no entry point is found, or the file of the workload function does not exist.
    """
    if options.entry is None:
        found = find_entry_points(tree, options.model, command)
        if options.own_epochs is not None:
            found = replace(
                found, entry_points=tuple(_with_epochs(one, options.own_epochs) for one in found.entry_points)
            )
        return replace(found, origin=str(root))
    hook = options.entry.hook
    if hook and hook.rpartition(":")[0].endswith(".py") and not (tree / workload_file_candidates(hook)[0]).is_file():
        raise NoTrainingFound(
            f"there is no {workload_file_candidates(hook)[0]} in {root}: name the file of the workload with --workload "
            f"or in [tool.chirp-migrate.verify], or run `chirp-migrate init-workload {root}`."
        )
    return DiscoveredEntryPoints((options.entry,), origin=str(root))


def _with_epochs(entry: EntryPoint, epochs: int) -> EntryPoint:
    """Return an entry point for whose full training the user has set the number of epochs."""
    return replace(entry, own=replace(entry.own, epochs=epochs, assumed=False))


def _entry_of_options(root: Path, given: Mapping[str, Any]) -> EntryPoint | None:
    if "script" in given:
        try:
            script = script_of_command(given["script"])
        except ValueError as problem:
            raise UsageProblem(f"{problem}; to run another program, write a Python script that starts it.") from None
        words = list(given["script"])
        if script.file:
            words[words.index(script.file, 1)] = _path_relative_to(root, script.file)
        return EntryPoint("", Path(script.file).name or script.module, script=tuple(words))
    if "workload" in given:
        return EntryPoint("", "", hook=given["workload"])
    if (root / DEFAULT_WORKLOAD).is_file():
        return EntryPoint("", "", hook=f"{DEFAULT_WORKLOAD}:workload")
    return None


def _path_relative_to(root: Path, script: str) -> str:
    """Return the path of a script relative to ``root``, so that the path is also valid in a copy of ``root``.

    Raises:
        UsageProblem: the folder ``root`` does not contain the script.
    """
    path = Path(os.path.normpath(root / script))
    if not path.is_relative_to(root):
        path = path.resolve()
    if not path.is_file() or not path.is_relative_to(root):
        raise UsageProblem(f"there is no {script} in {root}: pass the path of the script relative to this folder.")
    # The script gets the path in the form that the user typed, for example in sys.argv.
    return str(path.relative_to(root)) if Path(script).is_absolute() or ".." in Path(script).parts else script


def _sizes_of_options(given: Mapping[str, Any], entry: EntryPoint | None) -> WorkloadSizes:
    sizes = WorkloadSizes(
        **{one.name: given[one.name] for one in fields(WorkloadSizes) if one.name in given.keys() - {"data"}}
    )
    data = given.get("data")
    if data is not None:
        data = data.absolute()
        if not data.exists():
            raise UsageProblem(f"{data} does not exist: pass --data with the file or folder of your samples.")
        if entry is not None:
            return replace(sizes, data=str(data))
        for name in ("shape", "classes"):
            if name in given:
                raise UsageProblem(f"the samples in {data} determine {name}: omit {name}.")
        # Not at the top, because this import also imports NumPy, which the command ``report`` does not need.
        from chirp_migrate.training.workload.arrays import sizes_from_data_file

        sizes = sizes_from_data_file(sizes, data)
    if entry is None and sizes.samples < LEAST_SAMPLES:
        raise UsageProblem(
            f"{sizes.samples} samples are too few for training and validation: use at least {LEAST_SAMPLES} samples."
        )
    return sizes
