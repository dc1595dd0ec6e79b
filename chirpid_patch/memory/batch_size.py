"""Functions that find the largest batch size with which a training step fits in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chirpid_patch.device.precision import MixedPrecision
from chirpid_patch.memory.kept_state import restore_state_after
from chirpid_patch.memory.trials import MemoryTrials, create_memory_trials
from chirpid_patch.randomness.random_states import restore_generators_after

logger = logging.getLogger("chirpid_patch")

#: The first batch size to try. Batch normalisation cannot train on a single sample, so the first size is not 1.
_FIRST_SIZE = 2
#: Number of steps for each batch size. The first step creates gradients and the optimiser's state. Only the second step
#: uses as much memory as a step of a training.
_STEPS_PER_SIZE = 2


def largest_batch_size(
    step: Callable[[int], object],
    *,
    device: str | torch.device = "cpu",
    state: Iterable[Any] = (),
    max_batch_size: int = 512,
    memory_limit: int | None = None,
    safety_margin: float = 0.1,
) -> int:
    """Return the largest batch size up to ``max_batch_size`` with which ``step`` fits in memory.

    The search starts with 2 samples, and doubles the batch size until a size does not fit. A binary search below this
    size then finds the largest size that fits, which may be 1. The search runs two steps with each size.

    On CUDA, a size does not fit if the device runs out of memory. On the CPU, running out of memory could end the
    process, so the search predicts the memory of a step. The search tries more than 2 samples only if the size fits
    according to the prediction (see ``memory.trials``). The search does not catch other errors of a step.

    Args:
        step: function that runs a training step (forward, backward, optimiser) with a batch of the given size.
        device: device of the step. The result is valid only if other programs use no more memory on the device during
            the training than during the search.
        state: modules, optimisers and other objects that the step changes. Each object must have a ``state_dict``. The
            function restores the states of these objects and of all random generators to the last bit.
        max_batch_size: largest batch size to try. Do not pass more than the number of training samples.
        memory_limit: number of bytes that may be in use during a step: on CUDA by PyTorch in this process, on the CPU
            by the whole process. None: the bytes that are in use now plus all free bytes.
        safety_margin: share of ``memory_limit`` that must stay free, from 0 to below 1.

    Raises:
        RuntimeError: a batch of one sample does not fit.
        ValueError: an argument is out of range, or the device is neither CUDA nor the CPU.
        NotImplementedError: the device is the CPU, and psutil is not installed.
    """
    if max_batch_size < 1:
        raise ValueError(f"max_batch_size must be at least 1, not {max_batch_size}")
    place, owners = torch.device(device), list(state)
    with (
        _restored_generators(place, step, *owners),
        restore_state_after(*owners),
        create_memory_trials(place, memory_limit, safety_margin) as trials,
    ):
        size = _search_size(step, trials, max_batch_size)
    if not size:
        raise RuntimeError(
            f"even with one sample, a training step does not fit in the {trials.allowed_bytes / 2**20:.0f} MiB allowed "
            f"on {place}: raise memory_limit, or use a smaller model, smaller inputs or gradient checkpointing"
        )
    logger.info("largest batch size on %s: %d", place, size)
    return size


def _search_size(step: Callable[[int], object], trials: MemoryTrials, most: int) -> int:
    """Return the largest batch size up to ``most`` that fits in memory; 0 if no size fits."""
    shown, too_large = 0, most + 1
    while shown + 1 < too_large:
        doubled = min(max(2 * shown, _FIRST_SIZE), most)
        wanted = doubled if too_large > most else (shown + too_large) // 2
        size = trials.largest_size_to_try(shown, wanted)
        if size == shown:
            break
        if trials.fits(size, partial(_repeat, step, size)):
            shown = size
        else:
            too_large = size
    return shown


def _repeat(step: Callable[[int], object], size: int) -> None:
    for _ in range(_STEPS_PER_SIZE):
        step(size)


@contextmanager
def _restored_generators(device: torch.device, *owners: Any) -> Iterator[None]:
    """Restore the global generators, and those of ``device`` and ``owners``, at the end of the ``with`` block."""
    forked: Any = nullcontext()
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        forked = torch.random.fork_rng(devices=[index], device_type="cuda")
    with restore_generators_after(*owners), forked:
        yield


def calculate_optimal_batch_size(
    model: nn.Module,
    input_shape: Sequence[int],
    device: str | torch.device | None = None,
    *,
    criterion: Callable[[Any, Tensor], Tensor] | None = None,
    optimizer: Optimizer | None = None,
    amp_dtype: torch.dtype | None = None,
    max_batch_size: int = 512,
    memory_limit: int | None = None,
    safety_margin: float = 0.1,
) -> int:
    """Return the largest batch size with which ``model`` can be trained on ``device``.

    The function runs training steps with random inputs, and then restores the model, the optimiser and all random
    generators. If the model needs other inputs than one float32 tensor, or other targets than class numbers, pass your
    own step to ``largest_batch_size``.

    Args:
        model: a model on ``device``, with parameters to train.
        input_shape: shape of a sample, without the batch axis.
        device: device of the training; None: the device of the model.
        criterion: loss function, called with the model's output and an int64 tensor of class numbers, which are all 0.
            None: the loss is the mean of the output.
        optimizer: the optimiser of the training; None: ``AdamW``, whose state takes twice the memory of the parameters.
        amp_dtype: dtype of mixed precision, such as ``setup_mixed_precision().dtype``. None: no mixed precision.
        max_batch_size: as for ``largest_batch_size``.
        memory_limit: as for ``largest_batch_size``, in bytes.
        safety_margin: as for ``largest_batch_size``.

    Raises:
        ValueError: the model has no parameters to train, or is not on ``device``. The error also occurs if
            ``criterion`` is missing and the output of the model is not a tensor, or if ``largest_batch_size`` raises
            ValueError.
        RuntimeError: a batch of one sample does not fit.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("the model has no parameters to train, so no training step is possible")
    place = trained[0].device if device is None else torch.device(device)
    if trained[0].device.type != place.type:
        raise ValueError(f"the model is on {trained[0].device}: move it first, with model.to({str(place)!r})")
    chosen = torch.optim.AdamW(trained) if optimizer is None else optimizer
    precision = MixedPrecision(place, amp_dtype, tf32=False)
    scaler = precision.grad_scaler()

    def step(size: int) -> None:
        model.train()
        inputs = torch.randn((size, *input_shape), device=place)
        with precision.autocast():
            output = model(inputs)
            if criterion is not None:
                loss = criterion(output, torch.zeros(size, dtype=torch.int64, device=place))
            elif isinstance(output, Tensor):
                loss = output.float().mean()
            else:
                raise ValueError(
                    f"the model's output is a {type(output).__name__}, not a tensor: "
                    "pass a loss function as `criterion`"
                )
        # The old gradients stay in memory during the forward pass, as in many training loops.
        chosen.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(chosen)
        scaler.update()

    with torch.inference_mode(False), torch.enable_grad():
        return largest_batch_size(
            step,
            device=place,
            state=[model, chosen],
            max_batch_size=max_batch_size,
            memory_limit=memory_limit,
            safety_margin=safety_margin,
        )
