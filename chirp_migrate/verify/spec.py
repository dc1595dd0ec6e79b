"""What the parent process tells a child to do, and what the child answers: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from chirp_migrate.training.workload.entry_points import Discovery, EntryPoint, Sizes
from chirp_migrate.verify.equivalence.api import Api
from chirp_migrate.verify.measures.metric_data import SideMeasures
from chirp_migrate.verify.options import VerifyOptions

__all__ = ["EntryResult", "Mode", "RunResult", "RunSpec", "StepCount", "Trace", "Tried"]


class Mode(str, Enum):
    """One pass over all entry points.

    PROBE watches the loaders (untimed), TIMED leaves everything alone and takes the time, CACHED feeds every loop
    from one batch held in memory, which leaves the time of everything but loading. MEASURED puts clocks on the
    loaders and samples memory and GPU (see :mod:`chirp_migrate.verify.measures.measuring`).
    """

    PROBE = "probe"
    TIMED = "timed"
    CACHED = "cached"
    MEASURED = "measured"


@dataclass(frozen=True)
class RunSpec:
    """One child process: the tree it runs in and the passes it makes, in order.

    Attributes:
        tree: root of the backend, the working directory of the child.
        discovery: what is trained.
        options: how much of it, with how many threads, and what is measured; ``worker_counts`` are those of this side.
        modes: passes over the entry points; none to be told the names of a hook's calls.
        api_names: names to describe (see :func:`chirp_migrate.verify.equivalence.api.public_names`); empty for none.
        by_entry: whether a pass is made of one entry point after the other, each in a turn of its own.
        trial_s: instead of passes, train each entry point briefly and tell which of them fail (:class:`Tried`); after
            so many seconds no other one begins. None for passes.
        hash_seed: ``PYTHONHASHSEED`` of the process.
    """

    tree: str
    discovery: Discovery
    options: VerifyOptions
    modes: tuple[Mode, ...] = ()
    api_names: dict[str, list[str]] = field(default_factory=dict)
    by_entry: bool = False
    trial_s: float | None = None
    hash_seed: int = 0

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """What is trained, in the order in which it runs."""
        return self.discovery.entry_points

    @property
    def sizes(self) -> Sizes:
        """How much is trained."""
        return self.options.sizes

    @property
    def threads(self) -> int:
        """Compute threads, pinned to the same number on both sides."""
        return self.options.threads or 1


@dataclass
class StepCount:
    """Simulated steps of one entry point in one pass.

    Attributes:
        steps: training batches that were given a step.
        overrun: steps in which the training's own work took longer than the step; nothing was slept then.
        own_work_s: seconds that the training's own work took in all steps together.
    """

    steps: int = 0
    overrun: int = 0
    own_work_s: float = 0.0


@dataclass
class Trace:
    """One walk over one loader, as the training code saw it.

    Attributes:
        loader: number of the loader within the entry point, in order of first use.
        role: ``train`` when gradients were enabled as the first batch was taken, else ``validation``.
        random: whether fetching one sample again gives other values (augmentation is active).
        shuffled: whether the loader's sampler orders the samples at random.
        whole: whether the sampler is one of PyTorch's that names every sample exactly once.
        drop_last: whether the loader leaves out a last batch that is not full.
        finished: whether the loader was asked on until it had no more batches.
        available: samples of the loader's data set, -1 when it has no length.
        samples: samples taken.
        sizes: samples of each batch.
        batches: hash (first 16 hex digits) of each batch: dtypes, shapes and bytes of its samples, in order.
        contents: hash of the sorted hashes of the single samples: equal for equal samples in any order.
        plain_contents: the same of the samples before they are augmented; "" when not random, or not known.
        indices: of the samples taken, in order, as the sampler gave them; empty when they are not known.
        base: text that is equal for equal data sets, of the lowest one under the loader's.
        base_indices: ``indices`` as they are in that one.
        labels: count of each label, as text.
        losses: outputs of loss modules for each batch, as hexadecimal floats.
        sketches: some values of each batch, only when not random: see ``first_difference.sketch``.
        statistics: rows of ``augmentation_statistics.STATISTICS``, one per sample; only when random.
        paired: rows of ``augmentation_statistics.PAIRED``; only where samples before are known.
        repeats: pairs of samples in each of the ``augmentation_statistics.RELATIONS``, and how many
            of them were augmented with the same random numbers.
        unpicklable: why the loader could not be sent to worker processes; "" when it could.
        unseen: names of the types of what batches hold and is not looked into, sorted.
    """

    loader: int
    role: str = ""
    random: bool = False
    shuffled: bool = False
    whole: bool = False
    drop_last: bool = False
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

    def mean_loss(self) -> float | None:
        """Mean of the batches' losses, or None when no loss module ran."""
        return sum(map(float.fromhex, self.losses)) / len(self.losses) if self.losses else None


@dataclass
class EntryResult:
    """One entry point in one pass.

    Attributes:
        seconds: wall time of the call; in a CACHED pass without the time it took to make the cached batches.
        fingerprint: path of each value in what the call returned → exact text or hash of the value.
        traces: what the loaders yielded (PROBE only).
        seeds: what short runs with two other seeds showed, see ``equivalence.first_difference`` (PROBE only).
        steps: simulated device steps; None when none were asked for.
    """

    seconds: float
    fingerprint: dict[str, str]
    traces: list[Trace]
    seeds: list[dict[str, str]] = field(default_factory=list)
    steps: StepCount | None = None


@dataclass(frozen=True)
class Tried:
    """One entry point, trained briefly.

    Attributes:
        error: type and message, in one line; "" where it trained. Neither addresses nor the folder are in it.
        samples: of the first training and the second; of the third there are twice as many.
        first_s: seconds of the first training in its process, with a worker a loader at most.
        seconds: of an epoch, of two, and of one of twice the samples, all read in the process; () where it failed.
        starting_s: seconds that starting the workers would have added to these.
        printed: the end of the error's traceback.
    """

    error: str = ""
    samples: int = 0
    first_s: float = 0.0
    seconds: tuple[float, ...] = ()
    starting_s: tuple[float, ...] = ()
    printed: str = ""

    def expected_s(self, sizes: Sizes) -> float:
        """Seconds that a training of these sizes will take.

        Some of the time grows with the epochs and some does not, and so with the samples. How many workers are
        started does not depend on the samples.
        """
        once_s, _, more_s = self.seconds
        growing = min(1.0, max(0.0, more_s / once_s - 1)) if once_s > 0 else 1.0
        larger = 1 + growing * (sizes.samples / self.samples - 1)
        return larger * _over(sizes.epochs, self.seconds) + _over(sizes.epochs, self.starting_s)


def _over(epochs: int, seconds: tuple[float, ...]) -> float:
    """What so many epochs take when one and two take these seconds."""
    one, two = seconds[:2]
    return one + (epochs - 1) * max(0.0, two - one)


@dataclass
class RunResult:
    """Everything a child found out.

    Attributes:
        modes: results by mode and entry point label.
        api: what :func:`chirp_migrate.verify.equivalence.api.describe_api` found for the names asked for.
        names: of the calls that a hook gives, when that is what was asked for (a specification without modes).
        measured: what the MEASURED pass found, if there was one.
        tried: by entry point label; empty but for a trial.
    """

    modes: dict[Mode, dict[str, EntryResult]] = field(default_factory=dict)
    api: Api = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    measured: SideMeasures | None = None
    tried: dict[str, Tried] = field(default_factory=dict)
