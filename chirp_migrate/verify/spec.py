"""Classes for the task that ``verify`` sends to a child process, and for the results that the child sends back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from chirp_migrate.training.workload.entry_points import DiscoveredEntryPoints, EntryPoint, WorkloadSizes
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.options import VerifyOptions

REPEATED = "results of runs that were watched twice"
"""Name of the message with the results of runs that the child repeated.

The message contains a dictionary: label of the entry point → fingerprint of its return value (see
:class:`EntryPointRecord`).
"""


class JobKind(str, Enum):
    """The task of a child process.

    With NAMES, the child returns the names of the training calls that the user's workload function returns. With WATCH,
    the child trains every entry point on a few samples, and records the batches. With TIME, the child times epochs, and
    takes turns with the process of the other version.
    """

    NAMES = "names"
    WATCH = "watch"
    TIME = "time"


@dataclass(frozen=True)
class RunSpec:
    """The task of one child process, and the folder in which the process runs.

    Attributes:
        tree: root of the copy of the project, and working directory of the child.
        discovery: the entry points to train (training functions or a script).
        options: the options of the verification.
        job: the kind of task.
        api_names: dictionary, module → public names in this module whose signatures the child reads. If the dictionary
            is empty, the child reads no signatures.
        twice: only for the job WATCH, whether the child also records a second run of each entry point with the same
            seed. On a GPU, such runs may differ, and the second run shows which values differ.
        repeats: only for the job TIME, labels (short unique names) of the entry points that the child runs once more
            before the timing. This run has the same sizes as the run in which ``verify`` recorded the batches.
        whole: only for TIME, labels of the entry points that have no second epoch. The child times their whole call.
        cached: only for TIME, whether the child also times an epoch in which every loader repeats one batch from memory
            (zero-cost loading).
        memory_of: only for TIME, labels of the entry points during which the child measures its use of memory.
        hash_seed: value of ``PYTHONHASHSEED`` in the child.
        threads: number of compute threads for timed training, equal for both versions.
        watching_threads: number of compute threads while the child records batches. The number is about half of
            ``threads``, because both versions may record batches at the same time.
    """

    tree: str
    discovery: DiscoveredEntryPoints
    options: VerifyOptions
    job: JobKind
    api_names: dict[str, list[str]] = field(default_factory=dict)
    twice: bool = False
    repeats: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    cached: bool = False
    memory_of: tuple[str, ...] = ()
    hash_seed: int = 0
    threads: int = 1
    watching_threads: int = 1

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """Return the entry points (training functions or a script) in the order in which they run."""
        return self.discovery.entry_points

    @property
    def sizes(self) -> WorkloadSizes:
        """Return the numbers of samples, epochs and folds for timed runs; recorded runs are smaller."""
        return self.options.sizes


@dataclass
class StepCount:
    """The number and durations of the simulated device steps in one training.

    Attributes:
        steps: number of training batches with a simulated step.
        overrun: number of steps in which the training's own work took longer than the simulated step.
        own_work_s: seconds that the training's own work took in all steps together.
    """

    steps: int = 0
    overrun: int = 0
    own_work_s: float = 0.0


@dataclass
class LoaderPassTrace:
    """The record of one loader pass: one iteration over a loader.

    Attributes:
        loader: number of the loader, counted from 0 in the order of first use.
        role: purpose of the pass, which is ``train`` if gradients were enabled at the start of the pass, else
            ``validation``.
        random: whether samples are augmented, so that two reads of the same sample return different values.
        shuffled: whether the loader's sampler orders the samples randomly.
        whole: whether the loader has a sampler of PyTorch that yields every sample exactly once.
        drop_last: whether the loader omits an incomplete last batch.
        backwards: number of calls of ``backward`` that followed a batch of this pass, without a batch of another pass
            in between.
        finished: whether the training read all batches of the loader.
        available: number of samples in the loader's dataset; -1 if the dataset has no length.
        samples: number of samples that the pass yielded.
        sizes: number of samples in each batch.
        batches: for each batch, a hash of the dtypes, shapes and bytes of its tensors, as 16 hexadecimal digits.
        contents: hash of all samples of the pass, which does not depend on their order.
        plain_contents: hash of all samples before their augmentation, which does not depend on their order; "" if
            samples are not augmented or cannot be read without augmentation.
        indices: index of each sample in the loader's dataset, in the order of the batches; an empty list if the indices
            are not known.
        base: text that identifies the innermost dataset of the loader, such as the dataset in a ``Subset``. Equal
            datasets have equal texts.
        base_indices: index of each sample in the innermost dataset, in the same order; an empty list if the indices are
            not known.
        labels: dictionary, label as text → number of samples with this label.
        losses: all losses that loss modules returned for batches of the pass, as hexadecimal floats. If no loss module
            returned a loss for a batch, the list contains the numbers whose ``backward`` was called, or which were
            passed to ``torch.autograd.grad``. The loss of a vector is the sum of its elements.
        sketches: some values of each batch as text (see ``first_difference.encode_sample_values``); an empty list if
            samples are augmented.
        statistics: one row for each sample, with statistics of the augmented sample
            (``augmentation_statistics.STATISTICS``); an empty list if samples are not augmented.
        paired: one row for each sample, with statistics that compare the augmented sample with the same sample without
            augmentation (``augmentation_statistics.PAIRED``); an empty list if the samples without augmentation cannot
            be read.
        repeats: dictionary, key of ``augmentation_statistics.RELATIONS`` → two numbers. For example, the value (90, 2)
            of ``neighbours`` means: 90 pairs of neighbours in a batch were compared, and augmentation used the same
            random numbers for both samples of 2 of these pairs.
        unpicklable: why the loader cannot be pickled for worker processes; an empty string if the loader can be
            pickled.
        unseen: sorted type names of the objects in batches that ``verify`` does not compare.
    """

    loader: int
    role: str = ""
    random: bool = False
    shuffled: bool = False
    whole: bool = False
    drop_last: bool = False
    backwards: int = 0
    finished: bool = False
    available: int = -1
    samples: int = 0
    sizes: list[int] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    contents: str = ""
    plain_contents: str = ""
    indices: list[int] = field(default_factory=list)
    base: str = ""
    base_indices: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    sketches: list[str] = field(default_factory=list)
    statistics: list[list[float]] = field(default_factory=list)
    paired: list[list[float]] = field(default_factory=list)
    repeats: dict[str, tuple[int, int]] = field(default_factory=dict)
    unpicklable: str = ""
    unseen: list[str] = field(default_factory=list)


@dataclass
class EntryPointRecord:
    """The record of a small run of one entry point (a training function or script).

    Attributes:
        fingerprint: dictionary, path of a part of the training call's return value (such as ``result['accuracy']``) →
            exact text or hash of this part.
        traces: records of all loader passes (iterations over loaders) of the run, in order.
        seeds: two dictionaries, aspect (such as ``the losses``) → hash or text. The first dictionary describes this
            run, and the second dictionary describes a run with another seed. The differences show which aspects depend
            on the seed.
        again: records of the loader passes in another run with the same seed; an empty list without such a run.
        error: the error of the entry point in one line, or how the process crashed or hung; an empty string if the
            entry point trained. The text contains no memory addresses and no paths of temporary folders, so that the
            texts of both versions can be compared.
        printed: the last lines of the traceback, or of the output of a process that crashed or hung; an empty string if
            the entry point trained.
        lost: whether the process crashed while the entry point ran, or ``verify`` ended the process because the entry
            point took too long.
        hung: whether ``verify`` ended the process because the entry point took too long.
    """

    fingerprint: dict[str, str]
    traces: list[LoaderPassTrace]
    seeds: list[dict[str, str]] = field(default_factory=list)
    again: list[LoaderPassTrace] = field(default_factory=list)
    error: str = ""
    printed: str = ""
    lost: bool = False
    hung: bool = False


@dataclass
class EntryPointTiming:
    """The timing of one entry point (a training function or script) in one process, epoch by epoch.

    Attributes:
        start_s: seconds from the start of the training call to the end of the first epoch, with the creation of
            datasets, models and workers.
        epochs_s: seconds of each later epoch, including its validation; an empty list if the training has only one
            epoch.
        cached_s: seconds of each epoch with zero-cost loading, in which every loader repeats one batch from memory; an
            empty list if no such epoch was timed.
        rest_s: seconds from the end of the last timed epoch to the end of the training call; 0 if ``verify`` ended the
            training call early.
        samples: mean number of samples that all loaders together yielded in one later epoch.
        batches: mean number of batches that all loaders together yielded in one later epoch.
        waits_s: seconds of each wait for a training batch in the later epochs, without the first batch of each
            iteration over a loader; at most 400 values, chosen at random.
        first_waits_s: seconds from the start of an iteration over a training loader to its first batch, one value for
            each such iteration in the later epochs.
        waited_s: seconds of all waits for training and validation batches in the later epochs.
        lost_workers: number of loaders with a worker process that died or could not start.
        memory_bytes: largest memory of the process and its workers in the first epoch, in bytes; None if the memory was
            not read.
        memory_kind: kind of memory that ``memory_bytes`` contains, which is ``pss``, ``uss``, ``rss`` or ``peak-rss``
            (see ``chirpid_patch.machine.process_memory``).
        gpu_percent: utilisation of the visible GPUs (their mean, in percent) at the end of each later epoch; an empty
            list without a GPU.
        gpu_bytes: largest memory that PyTorch reserved on all visible GPUs together, in bytes; None without a GPU.
        steps: number and durations of the simulated device steps; None without a simulation.
        error: the error of the entry point in one line; an empty string without an error.
        printed: the last lines of the traceback of this error; an empty string without an error.
    """

    start_s: float = 0.0
    epochs_s: list[float] = field(default_factory=list)
    cached_s: list[float] = field(default_factory=list)
    rest_s: float = 0.0
    samples: float = 0.0
    batches: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    first_waits_s: list[float] = field(default_factory=list)
    waited_s: float = 0.0
    lost_workers: int = 0
    memory_bytes: int | None = None
    memory_kind: str = ""
    gpu_percent: list[float] = field(default_factory=list)
    gpu_bytes: int | None = None
    steps: StepCount | None = None
    error: str = ""
    printed: str = ""


@dataclass
class RunResult:
    """The final result of a child process. The child sends the results of entry points earlier, in separate messages.

    Attributes:
        api: public names and signatures of the project (see :mod:`chirp_migrate.verify.equivalence.api`); empty if the
            task requested none.
        names: names of the training calls that a workload function returns, if the job is NAMES; otherwise an empty
            list.
    """

    api: Api = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
