"""Record the batches that a training takes from its loaders, without changing the batches."""

from __future__ import annotations

import functools
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
"""Number of augmented samples that are compared for each entry point.

This number is enough to find a change of an augmentation's probability from 0.8 to 0.6.
"""

_DRAWING_S = 10.0


class LoaderRecorder(Interception):
    """Context manager that records each iteration over a loader, which is called a pass.

    The record of a pass is a :class:`LoaderPassTrace`. Recording does not change the state of the global random
    generators. To find out whether a dataset augments its samples, the recorder reads a few samples several times. If
    the dataset has its own random generator, these reads advance the generator. The generator advances equally in both
    versions, so the comparison stays valid.

    Attributes:
        few_workers: whether loaders start at most two worker processes for training. Two workers are enough to show how
            workers affect the samples. For validation, loaders then start no worker, or one worker if the loader has a
            setting that needs a worker, such as ``persistent_workers``. The default is False.
    """

    def __init__(self) -> None:
        super().__init__()
        self.few_workers = False
        self._samplers = SamplerRecorder()
        self._backward = call_before_backward(self._record_backward)
        self._walks: list[PassRecorder] = []
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._names: dict[int, str] = {}
        self._current: PassRecorder | None = None
        self._is_loss_recorded = False
        self._grad = torch.autograd.grad

    def __enter__(self) -> LoaderRecorder:
        super().__enter__()
        self._samplers.__enter__()
        self._backward.__enter__()
        self._grad = torch.autograd.grad
        torch.autograd.grad = self._make_recording_grad(self._grad)
        # A global forward hook of PyTorch would be simpler, but would change code that checks for such hooks.
        setattr(_Loss, "__call__", self._make_recording_loss())  # noqa: B010
        return self

    def __exit__(self, *exception: Any) -> None:
        delattr(_Loss, "__call__")
        torch.autograd.grad = self._grad
        self._backward.__exit__(*exception)
        self._samplers.__exit__(*exception)
        super().__exit__(*exception)

    def record_more_samples(self, draws: int = DRAWS) -> None:
        """Iterate again over the loaders that augment, until ``draws`` augmented samples are recorded in total.

        Call this method after the training. The samples that the training took also count. The method adds only the
        statistics of the additional samples to the records. The method stops after ten seconds, or if no loader allows
        another iteration.
        """
        walks = list(self._walks)
        augmented = {walk.record.loader: walk for walk in walks if walk.record.random and walk.record.samples}
        wanted = draws - sum(walk.record.samples for walk in walks if walk.record.random)
        until = time.monotonic() + _DRAWING_S
        while augmented and wanted > 0 and time.monotonic() < until:
            for number, walk in list(augmented.items()):
                seen = self._iterate_again(walk, wanted, until)
                wanted -= seen
                if not seen:
                    del augmented[number]
        self._walks = walks

    def _iterate_again(self, walk: PassRecorder, most: int, until: float) -> int:
        """Iterate again over the loader of a recorded iteration, and return the number of samples.

        The iteration ends after ``most`` samples, or at the time ``until`` (in seconds of ``time.monotonic``).
        """
        self._walks = []
        with suppress(Exception), _limit_workers(walk.loader):  # some loaders allow only one iteration
            for _ in walk.loader:
                if sum(more.record.samples for more in self._walks) >= most or time.monotonic() > until:
                    break
        for more in self._walks:
            walk.record.statistics += more.record.statistics
            walk.record.paired += more.record.paired
        return sum(more.record.samples for more in self._walks)

    def take(self) -> list[LoaderPassTrace]:
        """Return the records of all iterations over loaders since the last call of this method.

        The records are in the order in which the iterations began, and include iterations that yielded no batch.
        """
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
        """Return a context for running the code of a loader.

        The indices that the sampler yields in this context are added to ``walk``, the record of an iteration over the
        loader.
        """
        outer, self._samplers.into = self._samplers.into, (walk.loader, walk.drawn)
        try:
            with self.inside(walk.loader):
                yield
        finally:
            self._samplers.into = outer

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._samplers.cover_new_classes()
        number = self._numbers.setdefault(loader, len(self._numbers))
        with restore_generators_after():
            walk = PassRecorder.begin(loader, number, self._names)
        self._walks.append(walk)

        def around(advance: Callable[[], Any]) -> Any:
            """Take the next batch with ``advance``, add the batch to the record, and return the unchanged batch."""
            with self.loading(walk):
                try:
                    batch = advance()
                except StopIteration:
                    walk.record.finished = True
                    raise
            walk.add_batch(batch)
            self._current, self._is_loss_recorded = walk, False
            return batch

        with self.loading(walk), _limit_workers(loader) if self.few_workers else nullcontext():
            return LoaderIteratorWrapper(self, loader, start(), around)

    def _record_backward(self, tensors: Any) -> None:
        if self._current is not None:
            self._current.record.backwards += 1
            self._record_losses(tensors)

    def _record_losses(self, tensors: Any) -> None:
        """Record the numbers that a training differentiates, unless a loss module returned a loss for the batch.

        The loss of a vector is the sum of its elements.
        """
        if self._current is None or self._is_loss_recorded:
            return
        for tensor in tensors if isinstance(tensors, (list, tuple)) else (tensors,):
            self._record_loss(self._current, tensor.detach().sum() if isinstance(tensor, torch.Tensor) else tensor)

    def _make_recording_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a replacement for ``torch.autograd.grad``, which also records the losses to differentiate."""

        @functools.wraps(original)
        def grad(outputs: Any, *arguments: Any, **named: Any) -> Any:
            self._record_losses(outputs)
            return original(outputs, *arguments, **named)

        return grad

    def _make_recording_loss(self) -> Callable[..., Any]:
        """Return a replacement for ``__call__`` of loss modules, which computes the loss and also records its value."""

        def call(loss: _Loss, *arguments: Any, **named: Any) -> Any:
            output = torch.nn.Module.__call__(loss, *arguments, **named)
            if self._current is not None:
                self._is_loss_recorded = self._record_loss(self._current, output) or self._is_loss_recorded
            return output

        return call

    @staticmethod
    def _record_loss(walk: PassRecorder, loss: Any) -> bool:
        """Add a loss to the record of an iteration over a loader, and return whether the loss is a single number."""
        is_number = isinstance(loss, torch.Tensor) and loss.numel() == 1 and not loss.is_complex()
        if is_number:
            walk.record.losses.append(float(loss.detach()).hex())
        return is_number


class WorkerCountLimit(Interception):
    """Context manager that limits the workers of each loader as :class:`LoaderRecorder` does with ``few_workers``."""

    def _make_iterator(self, loader: Any, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        with _limit_workers(loader):
            return start()


def _limit_workers(loader: Any) -> AbstractContextManager[None]:
    """Return a context in which ``loader`` starts at most two workers for training, and at most one for validation.

    The seed of one worker shows how the loader seeds its workers. Two workers show whether different workers have
    different seeds. A third worker would only take time.
    """
    if not worker_processes(loader):
        return nullcontext()
    if torch.is_grad_enabled():
        return limit_workers(loader, 2)
    # A loader with persistent workers takes fewer random seeds than a loader without workers: keep one worker.
    keeps = loader.persistent_workers or getattr(loader, "keep_workers", False)
    return limit_workers(loader, int(keeps or loader.timeout > 0 or loader.worker_init_fn is not None))
