"""Zero-cost loading: every loader repeats one batch that is already in memory.

What is left of the training time is the model and everything else that is not loading. No loader can be faster
than this, so it says how much there is to gain ("headspace").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch import Tensor

from chirp_migrate.training.watch.interception import Interception
from chirpid_patch.device.moving import mapped

__all__ = ["CachedLoading"]


class CachedLoading(Interception):
    """Context manager under which loaders yield a cached batch, as often and as large as their real ones.

    Attributes:
        is_active: whether loaders that are iterated now do so; else they load as ever.
        making_s: seconds spent making cached batches, to be left out of the time.
    """

    def __init__(self) -> None:
        super().__init__(self._repeat)
        self.is_active = True
        self.making_s = 0.0

    def _repeat(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self.is_active or loader.batch_size is None or not hasattr(loader.sampler, "__len__"):
            return start()  # batches of unknown size or number are loaded as ever: the headroom is an underestimate
        return self._batches(loader)

    def _batches(self, loader: Any) -> Iterator[Any]:
        began = time.perf_counter()
        total, size = len(loader.sampler), loader.batch_size
        if total == 0:
            return
        batch = loader.collate_fn([loader.dataset[index] for index in islice(iter(loader.sampler), size)])
        self.making_s += time.perf_counter() - began
        whole, rest = divmod(total, size)
        for _ in range(whole):
            yield batch
        if rest and not loader.drop_last:
            yield mapped(batch, lambda part: part[:rest] if isinstance(part, Tensor) and part.ndim > 0 else part)
