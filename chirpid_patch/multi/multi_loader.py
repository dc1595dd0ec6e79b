"""Several loaders read as one: named, interleaved, resumable (R-001)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index as as_int
from types import TracebackType
from typing import Any, NamedTuple

from chirpid_patch.multi.interleave import Interleaving, SamplingStrategy, Turns
from chirpid_patch.multi.resume import State, begin_again, beginning, next_epochs, own_state, restore_own_state

__all__ = ["LoaderBatch", "MultiDataLoader", "MultiDataLoaderConfig", "SamplingStrategy"]


class LoaderBatch(NamedTuple):
    """A batch, and which of several loaders it comes from."""

    dataloader_idx: int
    dataloader_name: str
    batch: Any


@dataclass
class MultiDataLoaderConfig:
    """How several loaders are read as one.

    Attributes:
        sampling_strategy: how they take turns (a ``SamplingStrategy`` or its value, such as "weighted").
        dataloader_weights: for WEIGHTED, how often each is drawn, in any unit; equal where not given. A loader of
            weight 0 is not read.
        dataloader_names: a name for each, all different; "loader_0", … where not given.
        cycle_short_loaders: begin a loader again, with a new shuffle, when it is used up before the epoch is over.
            Otherwise an epoch has every batch of every loader once.
        alternating_pattern: for ALTERNATING, loaders by index or name, such as ("day", "day", "night"); one of each
            where not given. A loader that is not in it is not read.
        steps_per_epoch: batches of an epoch. Where not given: see ``len`` of ``MultiDataLoader``.
        seed: of the weighted draws, which differ from epoch to epoch.
    """

    sampling_strategy: SamplingStrategy | str = SamplingStrategy.SEQUENTIAL
    dataloader_weights: Sequence[float] | None = None
    dataloader_names: Sequence[str] | None = None
    cycle_short_loaders: bool = False
    alternating_pattern: Sequence[int | str] | None = None
    steps_per_epoch: int | None = None
    seed: int = 0

    def names(self, count: int) -> list[str]:
        """The names of ``count`` loaders. Raises ValueError if there are not as many, or two are the same."""
        if self.dataloader_names is None:
            return [f"loader_{index}" for index in range(count)]
        names = list(self.dataloader_names)
        if len(names) != count:
            raise ValueError(f"dataloader_names has {len(names)} names for {count} loaders: give one for each")
        if len(set(names)) < count:
            raise ValueError(f"dataloader_names has a name twice: {', '.join(names)}")
        return names

    def interleaving(self, count: int) -> Interleaving:
        """How ``count`` loaders take turns. Raises ValueError for settings that do not fit them, or make no sense."""
        try:
            strategy = SamplingStrategy(self.sampling_strategy)
        except ValueError:
            known = ", ".join(repr(one.value) for one in SamplingStrategy)
            raise ValueError(f"sampling_strategy is {self.sampling_strategy!r}: use one of {known}") from None
        given = [1.0] * count if self.dataloader_weights is None else self.dataloader_weights
        weights = tuple(float(weight) for weight in given)
        if len(weights) != count:
            raise ValueError(f"dataloader_weights has {len(weights)} weights for {count} loaders: give one for each")
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise ValueError(f"dataloader_weights must be 0 or more, and one of them above 0, not {list(weights)}")
        if self.steps_per_epoch is not None and self.steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be 1 or more, or None, not {self.steps_per_epoch}")
        names = self.names(count)
        pattern = tuple(_position(one, names) for one in self.alternating_pattern or range(count))
        return Interleaving(strategy, weights, pattern, self.cycle_short_loaders, self.steps_per_epoch, self.seed)


def _position(given: int | str, names: Sequence[str]) -> int:
    """The index of a loader of a pattern, given by index or name."""
    if given in names:
        return names.index(str(given))
    if isinstance(given, str) or not 0 <= as_int(given) < len(names):
        raise ValueError(f"alternating_pattern has {given!r}: use indices below {len(names)}, or {', '.join(names)}")
    return as_int(given)


@dataclass
class _Reading:
    """How far a loader was read since it last began."""

    begun_from: State
    epochs: list[int]
    length: int | None
    taken: int = 0
    over: bool = False


@dataclass
class _Epoch:
    """How far an epoch has come; the iterators themselves belong to the loop that reads."""

    number: int
    steps: int
    position: int = 0
    readings: dict[int, _Reading] = field(default_factory=dict)


class MultiDataLoader:
    """Reads several loaders as one: ``for dataloader_idx, dataloader_name, batch in MultiDataLoader(loaders, config)``.

    Which loader has its turn when depends on the configuration, the loaders' lengths and the number of the epoch alone:
    not on the speed of workers, and nothing is drawn for it from the global generators. Each loader draws from these
    what it draws on its own, when its first turn comes and whenever it begins again. Before it begins again, samplers
    that have a ``set_epoch`` and still stand at the epoch just read are moved on by one, so that distributed samplers
    shuffle anew, too, also within a cycled epoch.

    A loader is read to the length it tells. One that ends before is left out, or begins again if cycled.

    Attributes:
        loaders: the loaders.
        names: their names.
        config: the configuration.

    Raises:
        ValueError: no loaders, or a configuration that does not fit them.
        TypeError: a loader has no length, and the configuration needs it.
    """

    def __init__(self, loaders: Sequence[Any], config: MultiDataLoaderConfig | None = None) -> None:
        if not loaders:
            raise ValueError("give at least one loader")
        self.loaders = list(loaders)
        self.config = config or MultiDataLoaderConfig()
        self.names = self.config.names(len(self.loaders))
        self._last_epochs: list[list[int]] = [[] for _ in self.loaders]  # that samplers were told
        self._epochs_begun = 0
        self._epoch: _Epoch | None = None
        self._to_resume: _Epoch | None = None
        len(self)  # says what is wrong with the configuration

    def __len__(self) -> int:
        """Batches of an epoch.

        Without cycling, those of all loaders together. With it, and with ``steps_per_epoch``, as many as that says;
        else ROUND_ROBIN and ALTERNATING go on until every loader was read to its end at least once and the round, or
        pattern, is complete, and SEQUENTIAL and WEIGHTED take as many steps as the loaders have batches together.
        """
        return self._interleaving().epoch_steps(self._lengths())

    def _interleaving(self) -> Interleaving:
        return self.config.interleaving(len(self.loaders))

    def _lengths(self) -> list[int | None]:
        return [_length(loader) for loader in self.loaders]

    def __iter__(self) -> Iterator[LoaderBatch]:
        epoch, self._to_resume = self._to_resume, None
        iterators: dict[int, Iterator[Any]] = {}
        if epoch is None:
            turns = self._interleaving().turns(self._lengths(), self._epochs_begun)
            epoch = _Epoch(self._epochs_begun, len(turns))
            self._epochs_begun += 1
        else:
            turns = self._interleaving().turns(self._lengths(), epoch.number)
            if len(turns) != epoch.steps:
                raise ValueError(
                    f"the state is from an epoch of {epoch.steps} batches, and these loaders have {len(turns)}: "
                    "resume with the same data and configuration"
                )
            iterators = self._replay(epoch)
        self._epoch = epoch
        return self._read(epoch, turns, iterators)

    def _read(self, epoch: _Epoch, turns: Turns, iterators: dict[int, Iterator[Any]]) -> Iterator[LoaderBatch]:
        for index in turns[epoch.position :].tolist():
            batches = self._next_batch(epoch, index, iterators)
            epoch.position += 1
            for batch in batches:
                yield LoaderBatch(index, self.names[index], batch)

    def _next_batch(self, epoch: _Epoch, index: int, iterators: dict[int, Iterator[Any]]) -> list[Any]:
        """The next batch of a loader, which begins (again) where that is due; none where it is used up."""
        loader, cycle = self.loaders[index], self.config.cycle_short_loaders
        while True:
            fresh = index not in iterators
            if fresh:
                if index in epoch.readings and not cycle:
                    return []
                self._last_epochs[index] = epochs = next_epochs(loader, self._last_epochs[index])
                epoch.readings[index] = _Reading(beginning(loader), epochs, _length(loader))
                iterators[index] = iter(loader)
            reading = epoch.readings[index]
            try:
                batch = next(iterators[index])
            except StopIteration:
                reading.over = True
                del iterators[index]
                if fresh and cycle:
                    raise RuntimeError(f"the loader {self.names[index]!r} gave no batches to cycle") from None
                continue
            reading.taken += 1
            if reading.taken == reading.length:
                # Asked once more, as a loop of its own would: it ends its workers, and the epoch for its sampler.
                next(iterators.pop(index), None)
                reading.over = True
            return [batch]

    def _replay(self, epoch: _Epoch) -> dict[int, Iterator[Any]]:
        """The iterators of loaders that were being read, where they were."""
        iterators = {}
        for index, reading in epoch.readings.items():
            if not reading.over:
                loader = self.loaders[index]
                iterators[index] = begin_again(loader, reading.begun_from, reading.epochs, reading.taken)
        return iterators

    def state_dict(self) -> State:
        """What lets loaders made alike go on as these would: plain values and tensors, for a checkpoint.

        Taken between epochs or in the middle of one, where the batch in hand counts as read. The global random
        generators are the caller's to save and to restore.
        """
        epoch = self._epoch
        running = None
        if epoch is not None and epoch.position < epoch.steps:
            readings = {self.names[index]: dict(vars(reading)) for index, reading in epoch.readings.items()}
            running = {"number": epoch.number, "steps": epoch.steps, "position": epoch.position, "readings": readings}
        return {
            "epochs_begun": self._epochs_begun,
            "last_epochs": dict(zip(self.names, self._last_epochs, strict=True)),
            "loaders": {name: own_state(loader) for name, loader in zip(self.names, self.loaders, strict=True)},
            "epoch": running,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the loader whose ``state_dict`` this is was, at the next iteration.

        In the middle of an epoch that iteration gives the rest of it, once the batches read before are loaded again and
        dropped. Restore the global random generators before it.

        Raises:
            ValueError: the state is that of other loaders.
        """
        if list(state["loaders"]) != self.names:
            raise ValueError(f"the state is that of loaders {list(state['loaders'])}, and these are {self.names}")
        self.shutdown()  # workers at work would go on with what they have
        for name, loader in zip(self.names, self.loaders, strict=True):
            restore_own_state(loader, state["loaders"][name])
        self._epochs_begun = state["epochs_begun"]
        self._last_epochs = list(state["last_epochs"].values())
        self._epoch = self._to_resume = None
        running = state["epoch"]
        if running is not None:
            readings = {self.names.index(name): _Reading(**one) for name, one in running["readings"].items()}
            self._epoch = self._to_resume = _Epoch(running["number"], running["steps"], running["position"], readings)

    def shutdown(self) -> None:
        """End kept worker processes and threads of the loaders now; they start anew when they are read again."""
        for loader in self.loaders:
            if hasattr(loader, "shutdown"):
                loader.shutdown()

    def __enter__(self) -> MultiDataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def _length(loader: Any) -> int | None:
    """Batches of an epoch; None where the loader does not know."""
    try:
        return len(loader)
    except TypeError:
        return None
