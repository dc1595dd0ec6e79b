"""Classes for the data that ``doctor`` records while an entry point trains. The checks read this data."""

from __future__ import annotations

import math

import msgspec

IN_TRAINING_PROCESS = -1
"""Worker number that stands for the training process, which reads the samples of loaders without workers."""


class CodeLine(msgspec.Struct, frozen=True):
    """A line of the user's code; ``file`` is relative to the project and empty if the line is unknown."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class UnpicklablePart(msgspec.Struct, frozen=True):
    """An object of a loader that spawned workers need and that ``pickle`` refuses.

    Attributes:
        path: attribute path from the loader to the object, such as ``dataset.transform.steps[2]``.
        kind: ``lambda``, ``local function``, ``open file``, or another kind or class name of the object.
        place: line that defines the function or the class of the object.
        error: error that ``pickle`` raised, in one line.
    """

    path: str
    kind: str
    place: CodeLine
    error: str


class LoaderInfo(msgspec.Struct):
    """A loader over which the training iterated.

    Attributes:
        number: number of the loader, in the order of first use.
        place: line that built the loader.
        dataset: class name of the dataset.
        dataset_place: line that defines the class of the dataset.
        dataset_ids: numbers of the dataset and of the datasets that it wraps, outermost first; equal in two loaders for
            the same dataset object.
        is_stream: whether the dataset is an ``IterableDataset``.
        samples: length of the dataset; -1 if it has no length.
        batch_size: samples of a full batch; None if a batch sampler decides the size.
        num_workers, persistent_workers, drop_last, start_method: settings of the loader.
        sampler: class name of the sampler.
        is_random_order: whether the sampler is a class of PyTorch that shuffles.
        is_distributed: whether the sampler is a ``DistributedSampler`` that shuffles.
        unpicklable: objects that cannot be pickled for spawned workers; an empty list without workers.
        sent_bytes: bytes that are pickled for each worker that starts, without shared tensors; 0 if workers are forked,
            or if the number is not known.
        held_bytes: bytes of the tensors, arrays and pandas tables in the dataset.
        objects: dictionary, attribute path of a large container in the dataset → number of its Python objects.
        functions: dictionary, name of a function with which the dataset reads samples → line that defines the function.
        unguarded: line of the main script that starts workers and would run again in each worker; empty if there is no
            such line, if workers are forked, or if objects of the loader cannot be pickled.
    """

    number: int
    place: CodeLine
    dataset: str
    dataset_place: CodeLine
    dataset_ids: list[int]
    is_stream: bool
    samples: int
    batch_size: int | None
    num_workers: int
    persistent_workers: bool
    drop_last: bool
    start_method: str
    sampler: str
    is_random_order: bool
    is_distributed: bool = False
    unpicklable: list[UnpicklablePart] = []
    sent_bytes: int = 0
    held_bytes: int = 0
    objects: dict[str, int] = {}
    functions: dict[str, CodeLine] = {}
    unguarded: CodeLine = CodeLine()

    def __str__(self) -> str:
        return f"the loader at {self.place}" if self.place.file else f"a loader of {self.dataset}"


class NormalizationCall(msgspec.Struct):
    """Number of calls of a ``BatchNorm`` class in training mode during one loader pass.

    Attributes:
        kind: name of the class, such as ``BatchNorm2d``.
        with_one_sample: number of calls with one sample, for a batch of the loader that also has one sample.
        calls: number of all calls in training mode.
    """

    kind: str
    with_one_sample: int = 0
    calls: int = 0


class LoaderPass(msgspec.Struct):
    """What the training process records during one pass over a loader.

    Attributes:
        number: number of the pass, in the order in which passes began.
        loader: number of the loader.
        sizes: number of samples in each batch.
        has_gradients: for each batch, whether gradients were enabled when the training requested the batch.
        forwards, forwards_without: number of calls of modules after a batch of this pass, with gradients enabled and
            disabled.
        backwards: number of calls of ``backward`` after a batch of this pass.
        is_complete: whether the training read all batches of the loader.
        values: dictionary, attribute path in the dataset → value at the beginning of the pass; see
            :func:`.read_plain_attributes`.
        handles: number of open file descriptors of the training process after each batch; an empty list without
            workers.
        model: number of the first module that was called; -1 if no module was called.
        parameters: dtype of the parameters of the first module that was called; an empty string if no module was
            called.
        waits_s: seconds that the training waited for each batch.
        seconds: seconds from the beginning of the pass to its last batch.
        doubles: dictionary, position in the first batch → bytes of the float64 tensor at this position.
        normalization: dictionary, class name of a BatchNorm → number of its calls in training mode.
        carries_state: whether a recurrent module carries its state from batch to batch. The state is then zero for the
            first batch and not zero for the second batch.
        device: type of the device of the first module that was called; an empty string if no module was called.
        moved: dictionary, position in the first batch → bytes of the large tensor in CPU memory at this position.
        is_pinned: whether the large tensors in CPU memory are pinned.
        strided: positions of large tensors in CPU memory that are neither contiguous nor ``channels_last``.
        positions: dictionary, attribute path of an open file in the dataset → read position in the training process
            after each batch. The dictionary is empty if the loader does not fork several workers.
    """

    number: int
    loader: int
    sizes: list[int] = []
    has_gradients: list[bool] = []
    forwards: int = 0
    forwards_without: int = 0
    backwards: int = 0
    is_complete: bool = False
    values: dict[str, str] = {}
    handles: list[int] = []
    model: int = -1
    parameters: str = ""
    waits_s: list[float] = []
    seconds: float = 0.0
    doubles: dict[str, int] = {}
    normalization: dict[str, NormalizationCall] = {}
    carries_state: bool = False
    device: str = ""
    moved: dict[str, int] = {}
    is_pinned: bool = False
    strided: list[str] = []
    positions: dict[str, list[int]] = {}

    @property
    def waited_share(self) -> float:
        """Return the share of the pass in which the training waited for batches, 0 to 1."""
        return sum(self.waits_s) / self.seconds if self.seconds else 0.0

    @property
    def trains(self) -> bool:
        """Return whether the training called ``backward`` for batches of this pass."""
        return self.backwards > 0

    @property
    def evaluates(self) -> bool:
        """Return whether the pass validates: gradients are disabled, and ``backward`` is not called."""
        is_off = not any(self.has_gradients) or (self.forwards_without > 0 and not self.forwards)
        return bool(self.has_gradients) and is_off and not self.backwards


class ValueSums(msgspec.Struct):
    """Sums over the values of a batch, for each column of a table or each channel of images.

    Attributes:
        count: number of values in each column or channel.
        sums, squares: sum of the values, and sum of their squares, in each column or channel.
        lows, highs: smallest and largest value of each column; empty for images.
    """

    count: int
    sums: list[float]
    squares: list[float]
    lows: list[float] = []
    highs: list[float] = []

    def __add__(self, other: ValueSums) -> ValueSums:
        sums = [one + more for one, more in zip(self.sums, other.sums, strict=True)]
        squares = [one + more for one, more in zip(self.squares, other.squares, strict=True)]
        lows = [min(one, more) for one, more in zip(self.lows, other.lows, strict=True)]
        highs = [max(one, more) for one, more in zip(self.highs, other.highs, strict=True)]
        return ValueSums(self.count + other.count, sums, squares, lows, highs)

    @property
    def whole(self) -> ValueSums:
        """Return the sums over the values of all columns or channels together."""
        return ValueSums(self.count * len(self.sums), [sum(self.sums)], [sum(self.squares)])

    def means_and_deviations(self, less: int = 0) -> list[tuple[float, float]]:
        """Return mean and standard deviation of each column or channel that varies.

        Args:
            less: delta degrees of freedom of the standard deviation, such as ``ddof`` of ``numpy.std``.
        """
        found = []
        for total, squares in zip(self.sums, self.squares, strict=True):
            mean = total / self.count
            deviation = math.sqrt(max(0.0, squares - self.count * mean * mean) / max(1, self.count - less))
            if deviation > 0:
                found.append((mean, deviation))
        return found


class DatasetFunctionCalls(msgspec.Struct):
    """The calls of one function of a dataset while one batch was read.

    Attributes:
        calls, seconds: number of calls, and their total time in seconds.
        hashes: hashes of the return values, or of a part of them.
        bytes: bytes of the last return value that was hashed.
    """

    calls: int = 0
    seconds: float = 0.0
    hashes: list[str] = []
    bytes: int = 0

    @property
    def mean_s(self) -> float:
        """Return the mean duration of a call in seconds."""
        return self.seconds / max(1, self.calls)


class BatchRecord(msgspec.Struct):
    """The recording of one batch by the process that read it.

    Attributes:
        indices: indices of the samples, from the sampler; an empty list if the sampler does not yield integers.
        samples: hash of each sample, over its rows in all tensors; an empty list if a tensor does not have one row for
            each sample.
        whole: hash of all tensors of the batch; an empty string if the batch has no tensors.
        names: text that identifies each sample, if samples have no hash; equal texts mean equal samples.
        sample_bytes: bytes of one sample.
        labels: class of each sample, from a one-dimensional integer tensor; an empty list if the batch has no such
            tensor.
        moments: sums over the first floating-point tensor; None if the batch has no such tensor, or if the tensor has
            many columns.
        generators: dictionary, name of a random generator → its state after the batch was read; only for the first two
            batches.
        sizes: dictionary, attribute path of a container or cache in the dataset → its length after the batch was read;
            empty if lengths were not measured after this batch.
        native_threads: number of threads of C libraries that used CPU time since the first batch.
        seconds: seconds to read and collate the batch; 0 if they were not measured.
        some: dictionary, index of a sample → its hash, for a part of the samples in later training epochs.
        memory: bytes of memory that the process does not share, after the batch; 0 if they were not measured.
        results: dictionary, name of a function of the dataset → its calls while the batch was read; an empty dictionary
            before Python 3.12.
    """

    indices: list[int] = []
    samples: list[str] = []
    whole: str = ""
    names: list[str] = []
    sample_bytes: int = 0
    labels: list[int] = []
    moments: ValueSums | None = None
    generators: dict[str, str] = {}
    sizes: dict[str, int] = {}
    native_threads: int = 0
    seconds: float = 0.0
    some: dict[int, str] = {}
    memory: int = 0
    results: dict[str, DatasetFunctionCalls] = {}


class FetcherPassRecord(msgspec.Struct):
    """The recording of one loader pass by one process that reads samples.

    Attributes:
        worker: number of the worker process, or :data:`IN_TRAINING_PROCESS`.
        started_in: number of the loader pass that started the process.
        epoch: number of earlier passes for which the process read samples.
        generators: dictionary, name of a random generator → its state before the first batch.
        sizes: dictionary, attribute path of a container or cache in the dataset → its length before the first batch.
        values: dictionary, attribute path in the process's copy of the dataset → value.
        is_over: whether the iterable dataset has no more samples.
        tasks: recordings of the batches, in the order in which the process read them.
    """

    worker: int
    started_in: int
    epoch: int
    generators: dict[str, str] = {}
    sizes: dict[str, int] = {}
    values: dict[str, str] = {}
    is_over: bool = False
    tasks: list[BatchRecord] = []

    @property
    def last_container_sizes(self) -> dict[str, int]:
        """Return the lengths of the dataset's containers when they were last measured."""
        return next((task.sizes for task in reversed(self.tasks) if task.sizes), self.sizes)

    @property
    def native_threads(self) -> int:
        """Return the number of threads of C libraries that used CPU time during the pass."""
        return max((task.native_threads for task in self.tasks), default=0)


class WorkerCountTimings(msgspec.Struct, frozen=True):
    """The measured loading times of a loader with different numbers of workers, without training.

    Attributes:
        loader: number of the loader.
        num_workers: best number of workers: the smallest number that loads at most 5 % slower than the fastest number.
        now_s, best_s: seconds to load an epoch with the loader's present settings, and with the best number.
        tried: the numbers of workers that were measured.
    """

    loader: int
    num_workers: int
    now_s: float
    best_s: float
    tried: list[int]


class Recording(msgspec.Struct):
    """The recording of one entry point.

    Attributes:
        label: label of the entry point.
        cpus: number of CPUs that the training may use.
        most_handles: largest number of file descriptors that a process may open; 0 if it is not known.
        loaders: the loaders of the training.
        passes: the loader passes, as recorded by the training process.
        runs: the loader passes, as recorded by each process that read samples.
        worker_starts: numbers of the loader passes in which at least one new worker began to work.
        has_own_data: whether the training uses the user's own samples; False if ``doctor`` created them.
        tuned: measured numbers of workers for the slowest loader; None if they were not measured or not conclusive.
        seconds: wall time of the training in seconds.
        is_cut: whether the time was too short for two epochs.
        is_shortened: whether ``doctor`` ended a loader pass early.
        error: error that the entry point raised, in one line; an empty string if the entry point trained.
        printed: last lines of the traceback, or last lines that a crashed process printed.
    """

    label: str
    cpus: int = 0
    most_handles: int = 0
    loaders: list[LoaderInfo] = []
    passes: list[LoaderPass] = []
    runs: list[FetcherPassRecord] = []
    worker_starts: list[int] = []
    has_own_data: bool = True
    tuned: WorkerCountTimings | None = None
    seconds: float = 0.0
    is_cut: bool = False
    is_shortened: bool = False
    error: str = ""
    printed: str = ""

    def passes_of_loader(self, loader: LoaderInfo) -> list[LoaderPass]:
        """Return the passes over ``loader``, in the order in which they began."""
        return [one for one in self.passes if one.loader == loader.number]

    def runs_of(self, one: LoaderPass) -> list[FetcherPassRecord]:
        """Return the recordings of all processes that read samples in a pass, sorted by worker number."""
        earlier = [each.number for each in self.passes if each.loader == one.loader and each.number <= one.number]
        starts = {run.started_in for run in self.runs}
        started = max((number for number in earlier if number in starts), default=None)
        if started is None:
            return []
        epoch = sum(started <= number < one.number for number in earlier)
        found = [run for run in self.runs if run.started_in == started and run.epoch == epoch]
        return sorted(found, key=lambda run: run.worker)

    def samples_of(self, one: LoaderPass) -> dict[int, str]:
        """Return a dictionary: index of a sample → its hash, for all samples of a pass that have a hash."""
        found: dict[int, str] = {}
        for task in self.tasks_of(one):
            if task.indices and len(task.indices) == len(task.samples):
                found.update(zip(task.indices, task.samples, strict=True))
            found.update(task.some)
        return found

    def count_equal_samples(self, first: LoaderPass, second: LoaderPass) -> tuple[int, int]:
        """Return the number of samples that both passes have, and the number of these samples that are equal."""
        before, after = self.samples_of(first), self.samples_of(second)
        both = before.keys() & after.keys()
        return len(both), sum(before[index] == after[index] for index in both)

    def tasks_of(self, one: LoaderPass) -> list[BatchRecord]:
        """Return the recorded batches of a pass, sorted by worker number."""
        return [task for run in self.runs_of(one) for task in run.tasks]

    def group_passes(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Group the loader passes by dataset and by the line that built the loader.

        Loaders that the same line builds, for example a new loader for each epoch, count as one loader.
        """
        found: dict[tuple[CodeLine, int], list[tuple[LoaderInfo, LoaderPass]]] = {}
        for one in self.passes:
            loader = self.loaders[one.loader]
            found.setdefault((loader.place, loader.dataset_ids[0]), []).append((loader, one))
        return list(found.values())

    def group_training_passes(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Group the training passes by dataset and loader; omit iterable datasets and passes with a second model.

        A second model may belong to a second training, which may begin with the same seed on purpose.
        """
        found = []
        for series in self.group_passes():
            passes = [(loader, one) for loader, one in series if one.trains and not loader.is_stream]
            if passes:
                found.append([each for each in passes if each[1].model == passes[0][1].model])
        return found

    def trained_datasets(self) -> set[int]:
        """Return the numbers of the datasets that were used for training."""
        return {self.loaders[one.loader].dataset_ids[0] for one in self.passes if one.trains}
