"""Functions that choose and set mixed precision and TF32 for a device."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from chirpid_patch.device.moving import to_checked_device

logger = logging.getLogger("chirpid_patch")

_BF16_CAPABILITY = 8  # Ampere: bfloat16 and TF32 in hardware
_FP16_CAPABILITY = 7  # Volta: the first CUDA devices with matrix units for float16


def _fastest_dtype(device: torch.device) -> torch.dtype | None:
    """Return the dtype in which mixed precision is faster than float32 on ``device``; None if float32 is the fastest.

    The result is bfloat16 on CUDA devices that compute bfloat16 in hardware (Ampere and later), and float16 on Volta
    and Turing. The result is None on older CUDA devices and on the CPU. On most CPUs, mixed precision is slower than
    float32.
    """
    capability = _nvidia_capability(device)
    if capability >= _BF16_CAPABILITY or (device.type == "cuda" and torch.version.hip):
        return torch.bfloat16
    return torch.float16 if capability >= _FP16_CAPABILITY else None


def _nvidia_capability(device: torch.device) -> int:
    """Return the major compute capability of an NVIDIA device; 0 for any other device."""
    if device.type != "cuda" or torch.version.hip:
        return 0
    return torch.cuda.get_device_capability(device)[0]


@dataclass(frozen=True)
class MixedPrecision:
    """The settings that ``setup_mixed_precision`` chose for a device.

    Attributes:
        device: the device of the training.
        dtype: dtype of autocast; None or ``torch.float32`` means no autocast.
        tf32: whether the device multiplies float32 matrices in TF32.
    """

    device: torch.device
    dtype: torch.dtype | None
    tf32: bool

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the autocast context in which each step computes the forward pass and the loss."""
        plain = self.dtype in (None, torch.float32)
        return nullcontext() if plain else torch.autocast(self.device.type, dtype=self.dtype)

    def grad_scaler(self) -> Any:
        """Return the ``GradScaler`` for the backward pass and the optimiser step.

        The scaler scales the loss only for float16 on CUDA. Otherwise the scaler is disabled: ``scale`` returns its
        argument, ``step`` only calls the optimiser, and ``update`` does nothing. So the same training loop works on all
        devices.
        """
        scaling = self.device.type == "cuda" and torch.cuda.is_available() and self.dtype is torch.float16
        return torch.amp.GradScaler("cuda", enabled=scaling)

    def __str__(self) -> str:
        if self.dtype is None:
            autocast = "no autocast"
        else:
            scaled = self.device.type == "cuda" and self.dtype is torch.float16
            scaling = ", gradients scaled" if scaled else ", no gradient scaling"
            autocast = f"autocast to {str(self.dtype).removeprefix('torch.')}{scaling}"
        float32 = "TF32" if self.tf32 else "float32 precision unchanged"
        return f"mixed precision on {self.device}: {autocast}; {float32}"


def setup_mixed_precision(
    device: str | torch.device | None = None, *, dtype: torch.dtype | None = None, tf32: bool = True
) -> MixedPrecision:
    """Choose and set mixed precision and TF32 for ``device``.

        precision = setup_mixed_precision()
        scaler = precision.grad_scaler()
        ...
        with precision.autocast():
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    The function logs the settings to the logger ``chirpid_patch`` at level INFO, and ``str(precision)`` describes the
    settings. On the CPU, the function changes no setting of PyTorch, and autocast is off unless you pass ``dtype``.

    Args:
        device: the device of the training; None: the CUDA device if there is one, else the CPU.
        dtype: dtype of autocast. None chooses the fastest dtype on the device. ``torch.float32`` switches autocast off.
        tf32: whether CUDA devices multiply float32 matrices in TF32 (Ampere and later). TF32 has 10 instead of 23 bits
            of mantissa, so results differ from float32 from about the fourth digit on.

    Returns:
        A ``MixedPrecision`` with the methods ``autocast()`` and ``grad_scaler()``.

    Raises:
        ValueError: ``device`` is a CUDA device, but CUDA is not available.
    """
    chosen = to_checked_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    picked = _fastest_dtype(chosen) if dtype is None else dtype
    has_tf32 = _nvidia_capability(chosen) >= _BF16_CAPABILITY
    set_up = MixedPrecision(chosen, None if picked is torch.float32 else picked, tf32 and has_tf32)
    if set_up.tf32:
        _compute_in_tf32()
    logger.info("%s", set_up)
    return set_up


def _compute_in_tf32() -> None:
    """Allow CUDA devices to multiply float32 matrices in TF32.

    The function does not change the precision on the CPU. If ``torch.get_float32_matmul_precision()`` is already
    ``"medium"``, the function keeps this setting.
    """
    backends: Any = torch.backends
    on_cpu = getattr(backends.mkldnn, "matmul", None)  # torch >= 2.9
    before = None if on_cpu is None else on_cpu.fp32_precision
    if torch.get_float32_matmul_precision() == "highest":
        torch.set_float32_matmul_precision("high")
    if on_cpu is not None:
        on_cpu.fp32_precision = before
    backends.cudnn.allow_tf32 = True
    for kind in (backends.cuda.matmul, *(getattr(backends.cudnn, name, None) for name in ("conv", "rnn"))):
        # If a program has used PyTorch's newer setting (``fp32_precision``), setting only the older setting raises an
        # error.
        if getattr(kind, "fp32_precision", "tf32") != "tf32":
            kind.fp32_precision = "tf32"
