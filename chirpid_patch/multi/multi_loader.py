"""A loader that reads several named loaders in turns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chirpid_patch.loading.limits import loader_length
from chirpid_patch.multi.interleave import Interleaving, SamplingStrategy

__all__ = ["LoaderBatch", "MultiDataLoader", "MultiDataLoaderConfig", "SamplingStrategy"]


class LoaderBatch(NamedTuple):
    """A batch, with index and name of the loader that yielded it."""

    dataloader_idx: int
    dataloader_name: str
    batch: Any


@dataclass
class MultiDataLoaderConfig:
    """The settings of a ``MultiDataLoader``.

    Attributes:
        sampling_strategy: the order in which the loaders take turns: a ``SamplingStrategy`` or its value, such as
            "weighted".
        dataloader_weights: for WEIGHTED, how often each loader is chosen, relative to the other loaders. A loader with
            the weight 0 is not read. None: all loaders have the same weight.
        dataloader_names: the name of each loader; None: "loader_0", "loader_1", …. Names must be different.
        cycle_short_loaders: whether a loader without further batches starts again, in a new order, until the epoch
            ends. If False, an epoch contains every batch of every loader.
        steps_per_epoch: number of batches in an epoch; None: see ``MultiDataLoader.__len__``.
        seed: seed of the weighted turns. Each epoch has different turns.
    """

    sampling_strategy: SamplingStrategy | str = SamplingStrategy.SEQUENTIAL
    dataloader_weights: Sequence[float] | None = None
    dataloader_names: Sequence[str] | None = None
    cycle_short_loaders: bool = False
    steps_per_epoch: int | None = None
    seed: int = 0

    def names(self, count: int) -> list[str]:
        """Return the names of ``count`` loaders.

        Raises:
            ValueError: the number of names is not ``count``, or two names are equal.
        """
        if self.dataloader_names is None:
            return [f"loader_{index}" for index in range(count)]
        names = list(self.dataloader_names)
        if len(names) != count:
            raise ValueError(f"dataloader_names has {len(names)} names for {count} loaders: pass one name per loader")
        if len(set(names)) < count:
            raise ValueError(f"dataloader_names has a name twice: {', '.join(names)}")
        return names

    def interleaving(self, count: int) -> Interleaving:
        """Return the checked settings for ``count`` loaders.

        Raises:
            ValueError: a setting is out of range, or the number of weights is not ``count``.
        """
        try:
            strategy = SamplingStrategy(self.sampling_strategy)
        except ValueError:
            known = ", ".join(repr(one.value) for one in SamplingStrategy)
            raise ValueError(f"sampling_strategy is {self.sampling_strategy!r}: use one of {known}") from None
        given = [1.0] * count if self.dataloader_weights is None else self.dataloader_weights
        weights = tuple(float(weight) for weight in given)
        if len(weights) != count:
            raise ValueError(
                f"dataloader_weights has {len(weights)} weights for {count} loaders: pass one weight per loader"
            )
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise ValueError(f"dataloader_weights must be 0 or more, and one of them above 0, not {list(weights)}")
        if self.steps_per_epoch is not None and self.steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be 1 or more, or None, not {self.steps_per_epoch}")
        return Interleaving(strategy, weights, self.cycle_short_loaders, self.steps_per_epoch, self.seed)


class MultiDataLoader:
    """Read several loaders in turns.

        for dataloader_idx, dataloader_name, batch in MultiDataLoader(loaders, config): ...

    The order of the turns depends only on the configuration, the lengths of the loaders and the number of the epoch.
    Each loader uses its random generators at its first turn, and whenever it starts again. Before a loader starts
    again, this class sets the loader's samplers to the next epoch with ``set_epoch``. If the program itself has called
    ``set_epoch``, the samplers keep the epoch of the program. So a distributed sampler has a new order each time, even
    if its loader starts again within an epoch.

    If a loader ends before its length, its further turns are omitted. With ``cycle_short_loaders``, the loader starts
    again instead.

    Args:
        loaders: the loaders, at least one.
        config: the settings; None: the defaults of ``MultiDataLoaderConfig``.

    Attributes:
        loaders: the loaders.
        names: the names of the loaders.
        config: the settings.

    Raises:
        ValueError: there are no loaders, or the settings do not fit the loaders.
        TypeError: a loader has no length, and the settings require a length.
    """

    def __init__(self, loaders: Sequence[Any], config: MultiDataLoaderConfig | None = None) -> None:
        if not loaders:
            raise ValueError("pass at least one loader")
        self.loaders = list(loaders)
        self.config = config or MultiDataLoaderConfig()
        self.names = self.config.names(len(self.loaders))
        self._last_epochs: list[list[int]] = [[] for _ in self.loaders]  # by loader and sampler
        self._epochs_begun = 0
        len(self)  # raises an error for a wrong configuration

    def __len__(self) -> int:
        """Return the number of batches in an epoch.

        Without ``cycle_short_loaders``, the number is the sum of the lengths of all loaders, but at most
        ``steps_per_epoch``. With ``cycle_short_loaders``, the number is ``steps_per_epoch``. If ``steps_per_epoch`` is
        None, the number depends on the strategy:

        * ROUND_ROBIN: the length of the longest loader times the number of loaders.
        * SEQUENTIAL and WEIGHTED: the sum of all lengths.
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
        """Yield the batches of a loader. With ``cycle_short_loaders``, start the loader again at each end."""
        loader, begins = self.loaders[index], True
        while begins:
            begins = self.config.cycle_short_loaders
            self._advance_samplers(index)
            batches, length, taken = iter(loader), loader_length(loader), 0
            for batch in batches:
                taken += 1
                if taken == length:
                    # Request one more batch, as at the end of a loop. The request ends the workers and the sampler's
                    # epoch.
                    next(batches, None)
                yield batch
                if taken == length:
                    break
            if begins and not taken:
                raise RuntimeError(f"the loader {self.names[index]!r} yielded no batches to cycle")

    def _advance_samplers(self, index: int) -> None:
        """Set the samplers of a loader to the next epoch, unless the program has set another epoch."""
        last, numbers = self._last_epochs[index], []
        for place, sampler in enumerate(_samplers_with_epochs(self.loaders[index])):
            now = getattr(sampler, "epoch", None)
            if last and (now is None or now == last[place]):
                now = last[place] + 1
            numbers.append(now or 0)
            sampler.set_epoch(numbers[-1])
        self._last_epochs[index] = numbers

    def shutdown(self) -> None:
        """End the worker processes and threads of all loaders. The next iteration starts new processes and threads."""
        for loader in self.loaders:
            if hasattr(loader, "shutdown"):
                loader.shutdown()

    def __enter__(self) -> MultiDataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _samplers_with_epochs(loader: Any) -> list[Any]:
    """Return the samplers and inner samplers of a loader that have a method ``set_epoch``, without duplicates."""
    found: list[Any] = []
    waiting = [getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)]
    while waiting:
        sampler = waiting.pop(0)
        if sampler is not None and not any(sampler is one for one in found):
            found.append(sampler)
            waiting += [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    return [sampler for sampler in found if callable(getattr(sampler, "set_epoch", None))]
