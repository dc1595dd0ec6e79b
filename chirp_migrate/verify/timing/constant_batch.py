"""Zero-cost loading: every loader repeats one batch that is already in memory.

The training then only takes the time of the model and of other code that is not loading. No loader can make the
training faster, so the saved time is the headroom.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from torch import Tensor

from chirp_migrate.training.watch.interception import Interception
from chirpid_patch.device.moving import map_parts


class RepeatedBatchLoading(Interception):
    """Context manager under which loaders repeat one batch, in the number and with the sizes of their real batches.

    Attributes:
        is_active: whether loaders repeat one batch now; if not, they load as usual.
        making_s: seconds spent on loading the repeated batches, which do not count as training time.
    """

    def __init__(self) -> None:
        super().__init__(self._repeat)
        self.is_active = True
        self.making_s = 0.0

    def _repeat(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        if not self.is_active or loader.batch_size is None or not hasattr(loader.sampler, "__len__"):
            return start()  # size or number of batches is unknown: load as usual, so the headroom is underestimated
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
            yield map_parts(batch, lambda part: part[:rest] if isinstance(part, Tensor) and part.ndim > 0 else part)
