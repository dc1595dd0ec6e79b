"""A loader that reads several named loaders in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from chirpid_patch.loading.limits import loader_length
from chirpid_patch.multi.interleave import MultiDataLoaderConfig, SamplingStrategy

__all__ = ["LoaderBatch", "MultiDataLoader", "MultiDataLoaderConfig", "SamplingStrategy"]


class LoaderBatch(NamedTuple):
    """A batch, with index and name of the loader that yielded the batch."""

    dataloader_idx: int
    dataloader_name: str
    batch: Any


class MultiDataLoader:
    """Read several loaders in turns.

        for dataloader_idx, dataloader_name, batch in MultiDataLoader(loaders, config): ...

    The order of the turns depends only on the configuration, the lengths of the loaders and the number of the epoch. A
    loader makes the random calls of a new epoch at its first turn and at each restart. Before a loader starts again,
    this class sets the loader's samplers to the next epoch with ``set_epoch``. So a distributed sampler has a new order
    at each start, even if the loader starts again within an epoch. If the program has set another epoch with
    ``set_epoch`` since the last start, the samplers keep the epoch of the program.

    If a loader yields fewer batches than its length, its remaining turns are omitted. With ``cycle_short_loaders``, the
    loader starts again instead.

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
        self._last_epochs: list[list[int]] = [[] for _ in self.loaders]  # epochs by loader and sampler
        self._epochs_begun = 0
        len(self)  # raises an error for a wrong configuration

    def __len__(self) -> int:
        """Return the number of batches in an epoch.

        Without ``cycle_short_loaders``, the number is the sum of the lengths of all loaders, but at most
        ``steps_per_epoch``. With ``cycle_short_loaders``, the number is ``steps_per_epoch``. With
        ``cycle_short_loaders`` and ``steps_per_epoch=None``, the number depends on the strategy:

        * ROUND_ROBIN: the length of the longest loader times the number of loaders.
        * SEQUENTIAL and WEIGHTED: the sum of the lengths of all loaders.

        With WEIGHTED, a loader with the weight 0 does not count in any of these sums.
        """
        return self.config.epoch_steps(self._lengths())

    def _lengths(self) -> list[int | None]:
        return [loader_length(loader) for loader in self.loaders]

    def __iter__(self) -> Iterator[LoaderBatch]:
        turns = self.config.turns(self._lengths(), self._epochs_begun)
        self._epochs_begun += 1
        return self._read(turns.tolist())

    def _read(self, turns: list[int]) -> Iterator[LoaderBatch]:
        read = [self._batches(index) for index in range(len(self.loaders))]
        for index in turns:
            for batch in read[index]:
                yield LoaderBatch(index, self.names[index], batch)
                break

    def _batches(self, index: int) -> Iterator[Any]:
        """Yield the batches of a loader.

        With ``cycle_short_loaders``, start the loader again whenever its batches end.
        """
        loader, begins = self.loaders[index], True
        while begins:
            begins = self.config.cycle_short_loaders
            self._advance_samplers(index)
            batches, length, taken = iter(loader), loader_length(loader), 0
            for batch in batches:
                taken += 1
                if taken == length:
                    # Request one more batch, as at the end of a loop. This request ends the workers and the sampler's
                    # epoch.
                    next(batches, None)
                yield batch
                if taken == length:
                    break
            if begins and not taken:
                raise RuntimeError(f"the loader {self.names[index]!r} yielded no batches, so it cannot start again")

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
