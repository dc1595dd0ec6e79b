"""Define the data that ``doctor`` records while an entry point trains, and that the checks read.

An entry point is a training function or script. A loader pass is one iteration over a loader. If a loader starts worker
processes, each worker records the batches that it reads. Without workers, the training process reads and records all
batches.
"""

from __future__ import annotations

import math

import msgspec

IN_TRAINING_PROCESS = -1
"""Stands for the number of a worker if the training process itself reads the samples, because there are no workers."""


class CodeLine(msgspec.Struct, frozen=True):
    """A line of the user's code.

    ``file`` is a path relative to the project; an empty string if the line is not known.
    """

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class UnpicklablePart(msgspec.Struct, frozen=True):
    """An object that a spawned worker of a loader needs, but that ``pickle`` cannot pickle.

    Attributes:
        path: attribute path from the loader to the object, such as ``dataset.transform.steps[2]``.
        kind: kind of the object, such as ``lambda``, ``local function`` or ``open file``. All other objects have the
            name of their class as kind.
        place: line that defines the object (for a function or class) or the class of the object (for all other
            objects).
        error: type and message of the error that ``pickle`` raised, in one line.
    """

    path: str
    kind: str
    place: CodeLine
    error: str


class LoaderInfo(msgspec.Struct):
    """A loader over which the training iterated, and its dataset.

    Attributes:
        number: number of the loader, counted from 0 in the order in which the training first used the loaders.
        place: line of the user's code that built the loader.
        dataset: class name of the dataset.
        dataset_place: line of the user's code that defines the class of the dataset.
        dataset_ids: numbers that identify the dataset and the datasets that it wraps, outermost first. The same dataset
            object has the same number in all loaders.
        is_stream: whether the dataset is an ``IterableDataset``.
        samples: length of the dataset; -1 if the dataset has no length.
        batch_size: number of samples in a full batch; None if a batch sampler decides this number.
        num_workers: number of worker processes of the loader.
        persistent_workers: whether the loader keeps its workers between epochs.
        drop_last: whether the loader omits an incomplete last batch.
        start_method: start method of the workers, which is ``fork``, ``spawn`` or ``forkserver``.
        sampler: class name of the sampler.
        is_random_order: whether the sampler is PyTorch's ``RandomSampler`` or ``SubsetRandomSampler``.
        is_distributed: whether the sampler is a ``DistributedSampler`` with ``shuffle=True``.
        unpicklable: objects that cannot be pickled for spawned workers; an empty list without workers.
        sent_bytes: number of bytes that the loader pickles to start one worker. Tensors do not count, because workers
            share tensors. The number is 0 if workers are forked, or if the bytes were not counted.
        held_bytes: total number of bytes of the tensors, arrays and pandas tables in the dataset.
        objects: dictionary, attribute path of a large container in the dataset → number of Python objects in this
            container. A container is large if it has at least 10,000 objects, which take about 8 MiB or more.
        functions: dictionary, name of a function with which the dataset reads samples → line that defines the function.
        unguarded: line of the main script that starts the workers, if this line is not under an ``if``, such as the
            ``__main__`` guard. Each worker would then run this line again. The line is empty if it is under an ``if``,
            if workers are forked, or if the loader cannot be pickled.
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


class BatchNormCalls(msgspec.Struct):
    """The number of calls of a ``BatchNorm`` class in training mode during one loader pass (iteration over a loader).

    Attributes:
        kind: name of the class, such as ``BatchNorm2d``.
        with_one_sample: number of calls in which the input and the batch of the loader both had a single sample.
        calls: number of all calls in training mode.
    """

    kind: str
    with_one_sample: int = 0
    calls: int = 0


class LoaderPass(msgspec.Struct):
    """The data that the training process records during one iteration over a loader.

    Attributes:
        number: number of the loader pass, counted from 0 in the order in which the loader passes began.
        loader: number of the loader over which the training iterated.
        sizes: number of samples in each batch of the pass.
        has_gradients: for each batch, whether gradients were enabled when the training requested this batch.
        forwards: number of calls of modules, also of modules inside the model, for batches of this pass while gradients
            were enabled.
        forwards_without: number of the same calls while gradients were disabled.
        backwards: number of calls of ``backward`` for batches of this pass.
        is_complete: whether the training read all batches of the loader in this pass.
        values: dictionary, attribute path in the dataset → value at the beginning of the pass, as text. The dictionary
            contains the attributes that :func:`.read_plain_attributes` returns. The dictionary is empty if the loader
            has no persistent workers.
        handles: numbers of open file descriptors of the training process after each batch; an empty list if the loader
            has no workers.
        model: number of the first module that was called for a batch of this pass, which is usually the model; -1 if no
            module was called. Passes with the same number have the same model.
        parameters: dtype of the parameters (such as ``torch.float32``) of the first module with parameters that was
            called for a batch; an empty string if no such module was called.
        waits_s: for each batch, the seconds from the request of the training to the arrival of the batch.
        seconds: seconds from the beginning of the pass to the arrival of its last batch.
        doubles: dictionary, position of a float64 tensor in the first batch → number of bytes of this tensor.
        normalization: dictionary, name of a ``BatchNorm`` class → its :class:`BatchNormCalls` in this pass.
        carries_state: whether a recurrent module carries its state from batch to batch. Such a module gets a zero state
            for the first batch, and a state that is not zero for the second batch.
        device: device type (such as ``cuda``) of the first module with parameters that was called for a batch; an empty
            string if no such module was called.
        moved: dictionary, position of a large tensor in the first batch → number of bytes of this tensor. A tensor is
            large if it is in CPU memory and has 1 MiB or more. Copying such a tensor to the device takes time.
        is_pinned: whether all tensors that ``moved`` lists are in pinned memory.
        strided: positions in ``moved`` whose tensors are neither contiguous nor ``channels_last``.
        positions: dictionary, attribute path of an open file in the dataset → read position of the file in the training
            process, after each batch. The dictionary is empty if the loader has fewer than two workers, or if the
            workers are not forked.
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
    normalization: dict[str, BatchNormCalls] = {}
    carries_state: bool = False
    device: str = ""
    moved: dict[str, int] = {}
    is_pinned: bool = False
    strided: list[str] = []
    positions: dict[str, list[int]] = {}

    @property
    def waited_share(self) -> float:
        """Return the share (0 to 1) of the time of this loader pass in which the training waited for batches."""
        return sum(self.waits_s) / self.seconds if self.seconds else 0.0

    @property
    def trains(self) -> bool:
        """Return whether the training called ``backward`` at least once for batches of this iteration over a loader."""
        return self.backwards > 0

    @property
    def evaluates(self) -> bool:
        """Return whether the loader pass is a validation: gradients are disabled, and ``backward`` is not called.

        It is enough that gradients are disabled for all requests of batches (``no_grad`` around the loop), or for all
        calls of modules (``no_grad`` inside the loop).
        """
        is_off = not any(self.has_gradients) or (self.forwards_without > 0 and not self.forwards)
        return bool(self.has_gradients) and is_off and not self.backwards


class ValueSums(msgspec.Struct):
    """Sums over the values of batches, separately for each column of a table or each channel of images.

    Attributes:
        count: number of values in each column or channel.
        sums: sum of the values of each column or channel.
        squares: sum of the squared values of each column or channel.
        lows: smallest value of each column; an empty list for images.
        highs: largest value of each column; an empty list for images.
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
        """Return the sums over all values, as if all columns or channels were one column."""
        return ValueSums(self.count * len(self.sums), [sum(self.sums)], [sum(self.squares)])

    def means_and_deviations(self, less: int = 0) -> list[tuple[float, float]]:
        """Return pairs (mean, standard deviation): one pair for each column or channel whose values are not all equal.

        Args:
            less: delta degrees of freedom of the standard deviation, like ``ddof`` of ``numpy.std``. The default is 0.
        """
        found = []
        for total, squares in zip(self.sums, self.squares, strict=True):
            mean = total / self.count
            deviation = math.sqrt(max(0.0, squares - self.count * mean * mean) / max(1, self.count - less))
            if deviation > 0:
                found.append((mean, deviation))
        return found


class DatasetFunctionCalls(msgspec.Struct):
    """The calls of one function of a dataset while a process read one batch.

    Attributes:
        calls: number of calls.
        seconds: total time of these calls in seconds.
        hashes: hashes of return values, if the calls take 1 ms or more on average; otherwise an empty list. In later
            epochs, only some return values have hashes.
        bytes: number of bytes of the last return value that has a hash.
    """

    calls: int = 0
    seconds: float = 0.0
    hashes: list[str] = []
    bytes: int = 0

    @property
    def mean_s(self) -> float:
        """Return the mean duration of a call in seconds."""
        return self.seconds / max(1, self.calls)


class BatchRecord(msgspec.Struct, tag="task"):
    """The recording of one batch, by the process that read the batch.

    Attributes:
        indices: indices of the samples, as the sampler yields them; an empty list if the sampler does not yield
            integers.
        samples: hash of each sample, computed from its rows in all tensors. The list is empty if a tensor does not have
            one row for each sample, or if ``doctor`` computed no hashes for this batch.
        whole: hash of all tensors of the batch; an empty string if the batch has no tensors, or if ``doctor`` did not
            hash all samples of this batch.
        names: text for each sample, which contains the index of the sample in the innermost dataset. Equal texts mean
            equal samples. Only records from ``verify`` have names, because they have no hashes of samples.
        sample_bytes: mean number of bytes of a sample in this batch; 0 if ``samples`` is empty.
        labels: class of each sample, if the batch has exactly one tensor of integers with one axis; otherwise an empty
            list.
        moments: sums over the values of the first floating-point tensor; None if the batch has no such tensor, or if
            the tensor has more than 256 columns or channels.
        generators: dictionary, name of a random generator → text of its state after the batch was read. The dictionary
            is empty for all batches after the first two batches of an iteration over a loader.
        sizes: dictionary, attribute path of a container or cache in the dataset → its length after the batch was read.
            The dictionary is empty if the lengths were not measured after this batch.
        native_threads: number of threads of C libraries in this process. Only threads count that used at least 0.03 s
            of CPU time since the first batch. The number is 0 in the training process, or if the threads were not
            counted after this batch.
        seconds: seconds to read and collate the batch; 0 if the time was not measured.
        some: dictionary, index of a sample → its hash. In later training epochs, ``doctor`` hashes only some samples,
            and stores the hashes here instead of in ``samples``.
        memory: number of bytes of memory that the process does not share with other processes; 0 if the memory was not
            measured after this batch.
        results: dictionary, name of a function of the dataset → its calls while the batch was read. The dictionary is
            empty before Python 3.12.
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


class FetcherPassRecord(msgspec.Struct, tag="run"):
    """The recording of one loader pass (iteration over a loader), by one of the processes that read its samples.

    Attributes:
        worker: number of the worker process; :data:`IN_TRAINING_PROCESS` if the training process read the samples.
        started_in: number of the loader pass that started the worker process. If the training process itself reads the
            samples, the value is the number of the recorded pass.
        epoch: number of earlier loader passes for which this process read samples; 0 for the first pass.
        generators: dictionary, name of a random generator → text of its state before the first batch.
        sizes: dictionary, attribute path of a container or cache in the dataset → its length before the first batch.
        values: dictionary, attribute path in this process's copy of the dataset → value before the first batch, as
            text.
        is_over: whether the iterable dataset yielded its last sample in this process; False for other datasets.
        tasks: recordings of the batches, in the order in which this process read the batches.
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
        """Return a dictionary: attribute path of a container in the dataset → its length at the last measurement."""
        return next((task.sizes for task in reversed(self.tasks) if task.sizes), self.sizes)


class WorkerCountTimings(msgspec.Struct, frozen=True):
    """The measured loading times of a loader with different numbers of workers, without the time for training.

    Attributes:
        loader: number of the measured loader.
        num_workers: smallest number of workers with which loading is at most 5 % slower than with the fastest number.
        now_s: seconds to load an epoch with the present settings of the loader.
        best_s: seconds to load an epoch with ``num_workers`` workers.
        tried: all numbers of workers that were measured, in ascending order.
    """

    loader: int
    num_workers: int
    now_s: float
    best_s: float
    tried: list[int]


class Recording(msgspec.Struct):
    """The recording of one entry point (a training function or script).

    Attributes:
        label: short unique name of the entry point.
        cpus: number of CPUs that the training may use.
        most_handles: largest number of file descriptors that the training process may have open; 0 if this limit is not
            known.
        loaders: the loaders over which the training iterated, in the order of their numbers.
        passes: recordings of the training process, one recording for each loader pass (iteration over a loader).
        runs: recordings of all processes that read samples, one recording for each process and loader pass.
        worker_starts: numbers of the loader passes in which at least one new worker process began.
        has_own_data: whether the training uses the user's own samples; False if ``doctor`` created synthetic samples.
        tuned: loading times of one loader with different numbers of workers; None if ``doctor`` did not measure a
            loader of this entry point, or if the measurement does not show which number is best.
        seconds: wall time of the entry point in seconds.
        is_cut: whether the time for this entry point ended before two epochs were over.
        is_shortened: whether ``doctor`` ended at least one loader pass before its last batch.
        error: error that the entry point raised, or how its process ended, in one line; an empty string if no error
            occurred.
        printed: last lines of the traceback, or last lines that a crashed process printed; an empty string if no error
            occurred.
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
        """Return all loader passes (iterations) over ``loader``, in the order in which they began."""
        return [one for one in self.passes if one.loader == loader.number]

    def runs_of(self, one: LoaderPass) -> list[FetcherPassRecord]:
        """Return the recordings of the iteration ``one`` over a loader: one for each process, sorted by worker."""
        earlier = [each.number for each in self.passes if each.loader == one.loader and each.number <= one.number]
        starts = {run.started_in for run in self.runs}
        started = max((number for number in earlier if number in starts), default=None)
        if started is None:
            return []
        epoch = sum(started <= number < one.number for number in earlier)
        found = [run for run in self.runs if run.started_in == started and run.epoch == epoch]
        return sorted(found, key=lambda run: run.worker)

    def samples_of(self, one: LoaderPass) -> dict[int, str]:
        """Return a dictionary: index of a sample → its hash, for all hashed samples of the iteration ``one``."""
        found: dict[int, str] = {}
        for task in self.tasks_of(one):
            if task.indices and len(task.indices) == len(task.samples):
                found.update(zip(task.indices, task.samples, strict=True))
            found.update(task.some)
        return found

    def count_equal_samples(self, first: LoaderPass, second: LoaderPass) -> tuple[int, int]:
        """Return the number of samples that have a hash in both iterations, and how many of them have equal hashes."""
        before, after = self.samples_of(first), self.samples_of(second)
        both = before.keys() & after.keys()
        return len(both), sum(before[index] == after[index] for index in both)

    def tasks_of(self, one: LoaderPass) -> list[BatchRecord]:
        """Return the recorded batches of the iteration ``one`` over a loader, sorted by worker number."""
        return [task for run in self.runs_of(one) for task in run.tasks]

    def group_passes(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Group all loader passes (iterations over loaders) by the dataset and the line that built the loader.

        If a line builds a new loader for each epoch, the passes of all these loaders are therefore in one group.
        """
        found: dict[tuple[CodeLine, int], list[tuple[LoaderInfo, LoaderPass]]] = {}
        for one in self.passes:
            loader = self.loaders[one.loader]
            found.setdefault((loader.place, loader.dataset_ids[0]), []).append((loader, one))
        return list(found.values())

    def group_training_passes(self) -> list[list[tuple[LoaderInfo, LoaderPass]]]:
        """Group the loader passes in which the training called ``backward``, as :meth:`group_passes` does.

        Passes over iterable datasets are omitted. Each group contains only passes with the model of its first pass. A
        second model may belong to a second training, which may start from the same seed on purpose.
        """
        found = []
        for series in self.group_passes():
            passes = [(loader, one) for loader, one in series if one.trains and not loader.is_stream]
            if passes:
                found.append([each for each in passes if each[1].model == passes[0][1].model])
        return found

    def trained_datasets(self) -> set[int]:
        """Return the numbers of the datasets for whose batches the training called ``backward``."""
        return {self.loaders[one.loader].dataset_ids[0] for one in self.passes if one.trains}
