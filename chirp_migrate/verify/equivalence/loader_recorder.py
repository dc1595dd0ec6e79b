"""Record the batches that a training takes from its loaders, without changing the batches."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch.nn.modules.loss import _Loss

from chirp_migrate.training.watch.epoch_detector import call_before_backward
from chirp_migrate.training.watch.interception import (
    Interception,
    LoaderIteratorWrapper,
    SamplerRecorder,
    limit_workers,
)
from chirp_migrate.verify.equivalence.pass_recorder import PassRecorder
from chirp_migrate.verify.spec import LoaderPassTrace
from chirpid_patch.loading.limits import worker_processes
from chirpid_patch.randomness.random_states import restore_generators_after

DRAWS = 500
"""Number of augmented samples to compare for each entry point: enough to notice a probability of 0.6 instead of 0.8."""

_DRAWING_S = 10.0


class LoaderRecorder(Interception):
    """Context manager that records each pass over each loader (see :class:`LoaderPassTrace`).

    Recording does not change the state of the global random generators. A recording reads a few samples more than once,
    to find out whether a dataset augments them. If a dataset has its own random generator, the additional reads advance
    this generator, equally in both versions.

    Attributes:
        few_workers: whether loaders start at most two worker processes for training, and none for validation if
            possible. Two workers are enough to show the effect of workers on samples.
    """

    def __init__(self) -> None:
        super().__init__(self._watch)
        self.few_workers = False
        self._samplers = SamplerRecorder()
        self._backward = call_before_backward(self._count_backward)
        self._walks: list[PassRecorder] = []
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._names: dict[int, str] = {}
        self._current: PassRecorder | None = None

    def __enter__(self) -> LoaderRecorder:
        super().__enter__()
        self._samplers.__enter__()
        self._backward.__enter__()
        # A global module hook would change the behaviour of code that checks for such hooks.
        setattr(_Loss, "__call__", self._make_recording_loss())  # noqa: B010
        return self

    def __exit__(self, *exception: Any) -> None:
        delattr(_Loss, "__call__")
        self._backward.__exit__(*exception)
        self._samplers.__exit__(*exception)
        super().__exit__(*exception)

    def record_more_samples(self, draws: int = DRAWS) -> None:
        """Iterate over the loaders again after the training, until ``draws`` augmented samples are recorded.

        The records get only the statistics of the additional samples. The method stops early after ten seconds, or if
        no loader can be iterated over again.
        """
        walks = list(self._walks)
        augmented = {walk.record.loader: walk for walk in walks if walk.record.random and walk.record.samples}
        wanted = draws - sum(walk.record.samples for walk in walks if walk.record.random)
        until = time.monotonic() + _DRAWING_S
        while augmented and wanted > 0:
            for number, walk in list(augmented.items()):
                seen = self._iterate_again(walk, wanted, until)
                wanted -= seen
                if not seen:
                    del augmented[number]
        self._walks = walks

    def _iterate_again(self, walk: PassRecorder, most: int, until: float) -> int:
        """Iterate over the loader of ``walk`` again, until ``most`` samples or more were read; return their number."""
        self._walks = []
        with suppress(Exception), _limit_workers(walk.loader):  # the loader may allow one iteration only
            for _ in walk.loader:
                if sum(more.record.samples for more in self._walks) >= most or time.monotonic() > until:
                    break
        for more in self._walks:
            walk.record.statistics += more.record.statistics
            walk.record.paired += more.record.paired
        return sum(more.record.samples for more in self._walks)

    def take(self) -> list[LoaderPassTrace]:
        """Return the loader passes since the last call, in order of their start; some passes may have no batch."""
        last: dict[tuple[str, int], PassRecorder] = {}
        for walk in self._walks:
            kind = walk.record.role, walk.record.available
            walk.finish(last.get(kind))
            last[kind] = walk
        taken, self._walks, self._current = [walk.record for walk in self._walks], [], None
        self._numbers.clear()
        self._names.clear()
        return taken

    @contextmanager
    def loading(self, walk: PassRecorder) -> Iterator[None]:
        """Return a context for the code of the loader, in which the indices of its sampler belong to ``walk``."""
        outer, self._samplers.into = self._samplers.into, (walk.loader, walk.drawn)
        try:
            with self.inside(walk.loader):
                yield
        finally:
            self._samplers.into = outer

    def _watch(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._samplers.cover_new_classes()
        number = self._numbers.setdefault(loader, len(self._numbers))
        with restore_generators_after():
            walk = PassRecorder.begin(loader, number, self._names)
        self._walks.append(walk)

        def around(advance: Callable[[], Any]) -> Any:
            """Record the next batch, and return the unchanged batch."""
            with self.loading(walk):
                try:
                    batch = advance()
                except StopIteration:
                    walk.record.finished = True
                    raise
            walk.add_batch(batch)
            self._current = walk
            return batch

        with self.loading(walk), _limit_workers(loader) if self.few_workers else nullcontext():
            return LoaderIteratorWrapper(self, loader, start(), around)

    def _count_backward(self) -> None:
        if self._current is not None:
            self._current.record.backwards += 1

    def _make_recording_loss(self) -> Callable[..., Any]:
        """Return a replacement for ``__call__`` of loss modules that also records the loss."""

        def call(loss: _Loss, *arguments: Any, **named: Any) -> Any:
            output = torch.nn.Module.__call__(loss, *arguments, **named)
            if self._current is not None and isinstance(output, torch.Tensor) and output.numel() == 1:
                self._current.record.losses.append(float(output.detach()).hex())
            return output

        return call


class WorkerCountLimit(Interception):
    """Context manager under which loaders start at most two worker processes; see ``LoaderRecorder.few_workers``."""

    def __init__(self) -> None:
        super().__init__(self._start)

    def _start(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        with _limit_workers(loader):
            return start()


def _limit_workers(loader: Any) -> AbstractContextManager[None]:
    """Return a context in which ``loader`` starts at most two worker processes.

    One worker shows where its seed comes from, and two workers show whether their seeds differ. More workers would only
    take time.
    """
    if not worker_processes(loader):
        return nullcontext()
    if torch.is_grad_enabled():
        return limit_workers(loader, 2)
    # A loader with persistent workers requests a new seed less often, so validation keeps one worker.
    keeps = loader.persistent_workers or getattr(loader, "keep_workers", False)
    return limit_workers(loader, int(keeps or loader.timeout > 0 or loader.worker_init_fn is not None))
