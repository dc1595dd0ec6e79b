"""Several loaders read as one: named and interleaved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chirpid_patch.loading.limits import loader_length
from chirpid_patch.multi.interleave import Interleaving, SamplingStrategy

__all__ = ["LoaderBatch", "MultiDataLoader", "MultiDataLoaderConfig", "SamplingStrategy"]


class LoaderBatch(NamedTuple):
    """A batch, and the loader that it comes from."""

    dataloader_idx: int
    dataloader_name: str
    batch: Any


@dataclass
class MultiDataLoaderConfig:
    """How several loaders are read as one.

    Attributes:
        sampling_strategy: how the loaders take turns (a ``SamplingStrategy`` or its value, such as "weighted").
        dataloader_weights: for WEIGHTED, how often each loader gets a turn, in any unit; equal by default. A loader of
            weight 0 is not read.
        dataloader_names: a different name for each loader; "loader_0", … by default.
        cycle_short_loaders: start a loader again, with a new shuffle, if it ends before the epoch. Otherwise an epoch
            has every batch of every loader once.
        steps_per_epoch: number of batches of an epoch; for the default see ``MultiDataLoader.__len__``.
        seed: seed of the weighted turns, which differ from epoch to epoch.
    """

    sampling_strategy: SamplingStrategy | str = SamplingStrategy.SEQUENTIAL
    dataloader_weights: Sequence[float] | None = None
    dataloader_names: Sequence[str] | None = None
    cycle_short_loaders: bool = False
    steps_per_epoch: int | None = None
    seed: int = 0

    def names(self, count: int) -> list[str]:
        """Return the names of ``count`` loaders; raise ValueError for another number of names, or equal names."""
        if self.dataloader_names is None:
            return [f"loader_{index}" for index in range(count)]
        names = list(self.dataloader_names)
        if len(names) != count:
            raise ValueError(f"dataloader_names has {len(names)} names for {count} loaders: pass one for each")
        if len(set(names)) < count:
            raise ValueError(f"dataloader_names has a name twice: {', '.join(names)}")
        return names

    def interleaving(self, count: int) -> Interleaving:
        """Return how ``count`` loaders take turns; raise ValueError for settings that do not fit."""
        try:
            strategy = SamplingStrategy(self.sampling_strategy)
        except ValueError:
            known = ", ".join(repr(one.value) for one in SamplingStrategy)
            raise ValueError(f"sampling_strategy is {self.sampling_strategy!r}: use one of {known}") from None
        given = [1.0] * count if self.dataloader_weights is None else self.dataloader_weights
        weights = tuple(float(weight) for weight in given)
        if len(weights) != count:
            raise ValueError(f"dataloader_weights has {len(weights)} weights for {count} loaders: pass one for each")
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise ValueError(f"dataloader_weights must be 0 or more, and one of them above 0, not {list(weights)}")
        if self.steps_per_epoch is not None and self.steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be 1 or more, or None, not {self.steps_per_epoch}")
        return Interleaving(strategy, weights, self.cycle_short_loaders, self.steps_per_epoch, self.seed)


class MultiDataLoader:
    """Read several loaders as one: ``for dataloader_idx, dataloader_name, batch in MultiDataLoader(loaders, config)``.

    The turns depend only on the configuration, the loaders' lengths and the number of the epoch; they use no global
    generator. Each loader draws its own random numbers from the global generators, at its first turn and whenever it
    starts again. Before that, samplers with a ``set_epoch`` that are still at the previous epoch advance by one. So
    distributed samplers shuffle again, also within a cycled epoch.

    Each loader is read up to its length. A loader that ends earlier is omitted, or starts again if cycled.

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
            raise ValueError("pass at least one loader")
        self.loaders = list(loaders)
        self.config = config or MultiDataLoaderConfig()
        self.names = self.config.names(len(self.loaders))
        self._last_epochs: list[list[int]] = [[] for _ in self.loaders]  # the epoch that samplers were set to
        self._epochs_begun = 0
        len(self)  # raises an error for a wrong configuration

    def __len__(self) -> int:
        """Return the number of batches of an epoch.

        Without cycling, that is the sum over all loaders, at most ``steps_per_epoch``. With cycling it is
        ``steps_per_epoch``. If that is not set, ROUND_ROBIN continues until every loader was read to its end at least
        once and the round is complete; SEQUENTIAL and WEIGHTED take the sum over all loaders.
        """
        return self.config.interleaving(len(self.loaders)).epoch_steps(self._lengths())

    def _lengths(self) -> list[int | None]:
        return [loader_length(loader) for loader in self.loaders]

    def __iter__(self) -> Iterator[LoaderBatch]:
        turns = self.config.interleaving(len(self.loaders)).turns(self._lengths(), self._epochs_begun)
        self._epochs_begun += 1
        return self._read(turns.tolist())

    def _read(self, turns: list[int]) -> Iterator[LoaderBatch]:
        read = [self._batches(index) for index in range(len(self.loaders))]
        for index in turns:
            for batch in read[index]:
                yield LoaderBatch(index, self.names[index], batch)
                break

    def _batches(self, index: int) -> Iterator[Any]:
        """Yield the batches of a loader in an epoch, repeatedly if short loaders are cycled."""
        loader, begins = self.loaders[index], True
        while begins:
            begins = self.config.cycle_short_loaders
            self._advance_samplers(index)
            batches, length, taken = iter(loader), loader_length(loader), 0
            for batch in batches:
                taken += 1
                if taken == length:
                    # One more request, as at the end of a loop: it ends the loader's workers, and the epoch of its
                    # sampler.
                    next(batches, None)
                yield batch
                if taken == length:
                    break
            if begins and not taken:
                raise RuntimeError(f"the loader {self.names[index]!r} yielded no batches to cycle")

    def _advance_samplers(self, index: int) -> None:
        """Advance samplers with ``set_epoch`` that are still at the epoch that was read last."""
        last, numbers = self._last_epochs[index], []
        for place, sampler in enumerate(_samplers_with_epochs(self.loaders[index])):
            now = getattr(sampler, "epoch", None)
            if last and (now is None or now == last[place]):
                now = last[place] + 1
            numbers.append(now or 0)
            sampler.set_epoch(numbers[-1])
        self._last_epochs[index] = numbers

    def shutdown(self) -> None:
        """End kept worker processes and threads of the loaders now; the next iteration starts them again."""
        for loader in self.loaders:
            if hasattr(loader, "shutdown"):
                loader.shutdown()

    def __enter__(self) -> MultiDataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _samplers_with_epochs(loader: Any) -> list[Any]:
    """Return the samplers and inner samplers of a loader that count epochs, each once."""
    found: list[Any] = []
    waiting = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    while waiting:
        sampler = waiting.pop(0)
        if sampler is not None and not any(sampler is one for one in found):
            found.append(sampler)
            waiting += [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    return [sampler for sampler in found if callable(getattr(sampler, "set_epoch", None))]
