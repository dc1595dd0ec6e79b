"""The data that the child process records while one entry point trains, for the checks."""

from __future__ import annotations

import math

import msgspec

__all__ = [
    "IN_TRAINING_PROCESS",
    "FetcherRun",
    "LoaderInfo",
    "LoaderPass",
    "Moments",
    "NormalizationCall",
    "Place",
    "Recording",
    "Results",
    "Task",
    "UnpicklablePart",
    "WorkerTuning",
]

IN_TRAINING_PROCESS = -1
"""Worker number of the training process, for loaders without workers."""


class Place(msgspec.Struct, frozen=True):
    """A line of the user's code; ``file`` is relative to the project and empty if the line is unknown."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class UnpicklablePart(msgspec.Struct, frozen=True):
    """An object that a loader would have to send to spawned workers and that pickle refuses.

    Attributes:
        path: attribute path from the loader: ``dataset.transform.steps[2]``.
        kind: what the object is: ``lambda``, ``local function``, ``open file``, or the name of its class.
        place: the definition of a function or class.
        error: what pickle raised, in one line.
    """

    path: str
    kind: str
    place: Place
    error: str


class LoaderInfo(msgspec.Struct):
    """A loader that the training iterated.

    Attributes:
        number: in the order of first use.
        place: the line that built the loader.
        dataset: class name of its dataset.
        dataset_place: the definition of that class.
        dataset_ids: numbers of the dataset and of the datasets inside it, outermost first. Equal objects have equal
            numbers.
        is_stream: whether the dataset is an ``IterableDataset``.
        samples: length of the dataset; -1 if it has none.
        batch_size: samples of a full batch; None if a batch sampler decides.
        num_workers, persistent_workers, drop_last, start_method: as the loader has them.
        sampler: class name of the sampler.
        is_random_order: whether the sampler is one of PyTorch's that order samples at random.
        is_distributed: whether the sampler is a ``DistributedSampler`` that shuffles, for any number of processes.
        unpicklable: objects that could not be sent to spawned workers; empty without workers.
        sent_bytes: bytes that each start of a worker copies by pickle; 0 if workers are forked, or it is not known.
            Tensors do not count: they are shared.
        held_bytes: bytes of the tensors and arrays that the dataset holds.
        objects: number of Python objects in each large container that the dataset holds.
        functions: name → place of each function with which the dataset reads.
        unguarded: line of the main script that leads to the first pass and runs again if a worker imports the script;
            an empty place if there is none, or workers are forked or cannot be sent the loader's objects.
    """

    number: int
    place: Place
    dataset: str
    dataset_place: Place
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
    functions: dict[str, Place] = {}
    unguarded: Place = Place()

    def __str__(self) -> str:
        return f"the loader at {self.place}" if self.place.file else f"a loader of {self.dataset}"


class NormalizationCall(msgspec.Struct):
    """Calls of one kind of ``BatchNorm`` in training mode during one loader pass.

    Attributes:
        kind: class name.
        with_one_sample: calls whose input had one sample while the loader's batch had one sample.
        calls: all calls in training mode.
    """

    kind: str
    with_one_sample: int = 0
    calls: int = 0


class LoaderPass(msgspec.Struct):
    """One iteration over a loader, as the training process saw it.

    Attributes:
        number: in the order in which the passes began.
        loader: number of the loader.
        sizes: samples of each batch.
        has_gradients: for each batch, whether gradients were enabled when the training requested it.
        forwards, forwards_without: calls of modules while a batch of this pass was the latest batch, with gradients and
            without.
        backwards: calls of ``backward`` while a batch of this pass was the latest batch.
        is_complete: whether the loader was iterated to its end.
        values: attributes of the dataset at the beginning of the pass, by path, see :func:`.plain_values`.
        handles: file descriptors of the training process after each batch, of loaders with workers.
        model: number of the first module that was called; -1 if none was.
        parameters: dtype of the parameters of the first module that was called; empty if none was.
        waits_s: seconds that the training waited for each batch.
        seconds: from the beginning to the last batch.
        doubles: bytes of each float64 tensor of the first batch, by its place in the batch.
        normalization: calls of BatchNorm in training mode.
        carries_state: whether a recurrent module began the second batch with a state that is not zero, and the first
            batch without such a state.
        device: type of the device of the first module that was called; empty if none was.
        moved: bytes of each large tensor of the first batch that is in CPU memory, by its place in the batch.
        is_pinned: whether that memory is pinned.
        strided: places of those tensors that are neither contiguous nor in PyTorch's order of channels last.
        positions: position of each open file that the dataset holds in the training process, after each batch; only of
            loaders that fork several workers.
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
        """Return the share of the pass that the training waited for batches, 0 to 1."""
        return sum(self.waits_s) / self.seconds if self.seconds else 0.0

    @property
    def trains(self) -> bool:
        """Return whether the training computed gradients of the batches."""
        return self.backwards > 0

    @property
    def evaluates(self) -> bool:
        """Return whether gradients were off for every batch or every call of a module, and none were computed."""
        is_off = not any(self.has_gradients) or (self.forwards_without > 0 and not self.forwards)
        return bool(self.has_gradients) and is_off and not self.backwards


class Moments(msgspec.Struct):
    """Sums over the values of a batch, for each column of a table or each channel of images.

    Attributes:
        count: values in each column or channel.
        sums, squares: of the values and of their squares.
        lows, highs: least and greatest value of each column; only of tables.
    """

    count: int
    sums: list[float]
    squares: list[float]
    lows: list[float] = []
    highs: list[float] = []

    def __add__(self, other: Moments) -> Moments:
        sums = [one + more for one, more in zip(self.sums, other.sums, strict=True)]
        squares = [one + more for one, more in zip(self.squares, other.squares, strict=True)]
        lows = [min(one, more) for one, more in zip(self.lows, other.lows, strict=True)]
        highs = [max(one, more) for one, more in zip(self.highs, other.highs, strict=True)]
        return Moments(self.count + other.count, sums, squares, lows, highs)

    @property
    def whole(self) -> Moments:
        """Return the sums over all columns or channels together."""
        return Moments(self.count * len(self.sums), [sum(self.sums)], [sum(self.squares)])

    def figures(self, less: int = 0) -> list[tuple[float, float]]:
        """Return mean and standard deviation of each column or channel that varies.

        Args:
            less: number to subtract from the count that divides the sum of squares.
        """
        found = []
        for total, squares in zip(self.sums, self.squares, strict=True):
            mean = total / self.count
            deviation = math.sqrt(max(0.0, squares - self.count * mean * mean) / max(1, self.count - less))
            if deviation > 0:
                found.append((mean, deviation))
        return found


class Results(msgspec.Struct):
    """Results of a function of a dataset while one batch was read.

    Attributes:
        calls, seconds: number of calls, and their total time.
        hashes: hashes of all results, or of some.
        bytes: bytes of the last result that was hashed.
    """

    calls: int = 0
    seconds: float = 0.0
    hashes: list[str] = []
    bytes: int = 0

    @property
    def mean_s(self) -> float:
        """Return the mean seconds of a call."""
        return self.seconds / max(1, self.calls)


class Task(msgspec.Struct):
    """One batch, as recorded by the process that read it.

    Attributes:
        indices: indices from the sampler; empty if they are not whole numbers.
        samples: hash of each sample: its rows in all tensors of the batch; empty if the batch has no rows.
        whole: hash of all tensors of the batch; empty if it has none.
        names: a name for each sample without a hash; equal names are equal samples.
        sample_bytes: bytes of one sample.
        labels: class of each sample, from a one-dimensional tensor of whole numbers; empty if there is none.
        moments: sums over the first tensor of real numbers; None if the batch has none, or if it has many columns.
        generators: state of each random generator after the batch was read; recorded for the first batches only.
        sizes: length of each dictionary, list, set and cache that the dataset holds, after the batch was read; empty
            after batches for which it was not measured.
        native_threads: threads of C libraries that used CPU time since the first batch, without Python's own threads.
        seconds: time to read and collate the batch; 0 if not measured.
        some: hash of a few of the samples, by index, in later training epochs.
        memory: bytes of memory that only this process has, after the batch; 0 if not measured after this batch.
        results: results of the functions of the dataset, by name; empty before Python 3.12.
    """

    indices: list[int] = []
    samples: list[str] = []
    whole: str = ""
    names: list[str] = []
    sample_bytes: int = 0
    labels: list[int] = []
    moments: Moments | None = None
    generators: dict[str, str] = {}
    sizes: dict[str, int] = {}
    native_threads: int = 0
    seconds: float = 0.0
    some: dict[int, str] = {}
    memory: int = 0
    results: dict[str, Results] = {}


class FetcherRun(msgspec.Struct):
    """One loader pass, as recorded by one process that reads samples.

    Attributes:
        worker: number of the worker process, or :data:`IN_TRAINING_PROCESS`.
        started_in: number of the loader pass in which the process was started.
        epoch: number of the passes that the process served before this one.
        generators: state of each random generator before the first batch.
        sizes: length of each dictionary, list, set and cache that the dataset holds, before the first batch.
        values: attributes of the dataset's copy in this process, by path.
        is_over: whether a stream ended.
        tasks: batches, in the order in which they were read.
    """

    worker: int
    started_in: int
    epoch: int
    generators: dict[str, str] = {}
    sizes: dict[str, int] = {}
    values: dict[str, str] = {}
    is_over: bool = False
    tasks: list[Task] = []

    @property
    def last_container_sizes(self) -> dict[str, int]:
        """Return ``sizes`` of the last measurement."""
        return next((task.sizes for task in reversed(self.tasks) if task.sizes), self.sizes)

    @property
    def native_threads(self) -> int:
        """Return the number of threads of C libraries that used CPU time."""
        return max((task.native_threads for task in self.tasks), default=0)


class WorkerTuning(msgspec.Struct, frozen=True):
    """The result of measuring numbers of workers for a loader, without the training.

    Attributes:
        loader: number of the loader.
        num_workers: the smallest number that is as fast as the fastest one, to 5 %.
        now_s, best_s: seconds to load an epoch, as the loader does now and with that number.
        tried: the numbers that were measured.
    """

    loader: int
    num_workers: int
    now_s: float
    best_s: float
    tried: list[int]


class Recording(msgspec.Struct):
    """The recording of one entry point.

    Attributes:
        label: the entry point.
        cpus: CPUs that the training may use.
        most_handles: limit of file descriptors of a process; 0 if unknown.
        loaders, passes, runs: see the classes.
        worker_starts: numbers of the passes that started workers, if at least one worker began to work.
        has_own_data: whether the number of samples is the user's own, and not a choice of doctor.
        tuned: numbers of workers that were measured for the slowest loader; None if not measured or not clear.
        seconds: wall time.
        is_cut: whether its time ended before its third epoch began, and before the training ended.
        error: what the entry point raised, in one line; empty if it trained.
        printed: the end of the traceback, or of the output of a process that was lost.
    """

    label: str
    cpus: int = 0
    most_handles: int = 0
    loaders: list[LoaderInfo] = []
    passes: list[LoaderPass] = []
    runs: list[FetcherRun] = []
    worker_starts: list[int] = []
    has_own_data: bool = True
    tuned: WorkerTuning | None = None
    seconds: float = 0.0
    is_cut: bool = False
    error: str = ""
    printed: str = ""

    def of_loader(self, loader: LoaderInfo) -> list[LoaderPass]:
        """Return the passes over a loader, in order."""
        return [one for one in self.passes if one.loader == loader.number]

    def runs_of(self, one: LoaderPass) -> list[FetcherRun]:
        """Return the recordings of the processes that read in a pass, by worker number."""
        earlier = [each.number for each in self.passes if each.loader == one.loader and each.number <= one.number]
        starts = {run.started_in for run in self.runs}
        started = max((number for number in earlier if number in starts), default=None)
        if started is None:
            return []
        epoch = sum(started <= number < one.number for number in earlier)
        found = [run for run in self.runs if run.started_in == started and run.epoch == epoch]
        return sorted(found, key=lambda run: run.worker)

    def samples_of(self, one: LoaderPass) -> dict[int, str]:
        """Return the hash of each hashed sample of a pass, by index."""
        found: dict[int, str] = {}
        for task in self.tasks_of(one):
            if task.indices and len(task.indices) == len(task.samples):
                found.update(zip(task.indices, task.samples, strict=True))
            found.update(task.some)
        return found

    def compare(self, first: LoaderPass, second: LoaderPass) -> tuple[int, int]:
        """Return how many samples of two passes can be compared by index, and how many of these are equal."""
        before, after = self.samples_of(first), self.samples_of(second)
        both = before.keys() & after.keys()
        return len(both), sum(before[index] == after[index] for index in both)

    def tasks_of(self, one: LoaderPass) -> list[Task]:
        """Return the batches of a pass, by worker number."""
        return [task for run in self.runs_of(one) for task in run.tasks]

    def series(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Return the passes over each dataset, in order; loaders built again for each epoch count as one."""
        found: dict[tuple[Place, int], list[tuple[LoaderInfo, LoaderPass]]] = {}
        for one in self.passes:
            loader = self.loaders[one.loader]
            found.setdefault((loader.place, loader.dataset_ids[0]), []).append((loader, one))
        return list(found.values())

    def training_series(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Return the training passes of one model over each dataset, in order, without streams.

        Passes of another model belong to another run, which may begin with the same seed on purpose.
        """
        found = []
        for series in self.series():
            passes = [(loader, one) for loader, one in series if one.trains and not loader.is_stream]
            if passes:
                found.append([each for each in passes if each[1].model == passes[0][1].model])
        return found

    def trained_datasets(self) -> set[int]:
        """Return the numbers of the datasets for whose batches gradients were computed."""
        return {self.loaders[one.loader].dataset_ids[0] for one in self.passes if one.trains}
