"""Mixed precision and TF32, chosen by the device, said, and undone when asked (R-001)."""

from __future__ import annotations

import logging
import operator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch

logger = logging.getLogger("chirpid_patch")

#: PyTorch's settings of float32 arithmetic on CUDA, in the order in which they are put back: the older ones change the
#: newer ones (torch >= 2.9). A newer one that is set alone makes PyTorch refuse to tell the older one.
_PRECISION, _CUDNN = "float32_matmul_precision", "cudnn.allow_tf32"
_MATMUL, _CPU_MATMUL = "cuda.matmul.fp32_precision", "mkldnn.matmul.fp32_precision"
_CONVOLUTION, _RECURRENT = "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"
_SETTINGS = (_PRECISION, _CUDNN, _MATMUL, _CPU_MATMUL, _CONVOLUTION, _RECURRENT)

_BF16_CAPABILITY = 8  # Ampere: bfloat16 and TF32 in hardware
_FP16_CAPABILITY = 7  # Volta: the first with matrix units for float16


def amp_dtype_for(device: str | torch.device) -> torch.dtype | None:
    """The dtype in which mixed precision is faster on ``device``; None where it is not.

    bfloat16 on CUDA devices that compute it in hardware, float16 on those from Volta to Turing, None on older ones
    and wherever there is no CUDA device: on a CPU mixed precision is slower unless it has instructions for it.
    """
    chosen = torch.device(device)
    if chosen.type != "cuda" or not torch.cuda.is_available():
        return None
    if torch.version.hip:
        return torch.bfloat16
    major, _ = torch.cuda.get_device_capability(chosen)
    if major >= _BF16_CAPABILITY:
        return torch.bfloat16
    return torch.float16 if major >= _FP16_CAPABILITY else None


def autocast_for(device: str | torch.device, dtype: torch.dtype | None = None) -> AbstractContextManager[Any]:
    """``torch.autocast`` with the dtype for ``device``, or nothing where there is none (``amp_dtype_for``).

    On a CPU there is autocast only where it is asked for: ``dtype=torch.bfloat16``.
    """
    chosen = torch.device(device)
    dtype = amp_dtype_for(chosen) if dtype is None else dtype
    return nullcontext() if dtype in (None, torch.float32) else torch.autocast(chosen.type, dtype=dtype)


def grad_scaler_for(device: str | torch.device, dtype: torch.dtype | None = None) -> Any:
    """A ``GradScaler`` for training under ``autocast_for(device, dtype)``: at work with float16 on CUDA only.

    Elsewhere ``scale``, ``step`` and ``update`` do what a loop without it does: one loop is right for all devices.
    """
    chosen = torch.device(device)
    dtype = amp_dtype_for(chosen) if dtype is None else dtype
    scaling = chosen.type == "cuda" and torch.cuda.is_available() and dtype is torch.float16
    if hasattr(torch.amp, "GradScaler"):  # torch >= 2.3
        return torch.amp.GradScaler("cuda", enabled=scaling)
    return torch.cuda.amp.GradScaler(enabled=scaling)


class MixedPrecision:
    """What ``setup_mixed_precision`` set up, for one device. As a context manager it is undone at the end.

    device, dtype: where, and the dtype of autocast; None is none.
    changes: what was set, in words.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype | None, *, tf32: bool) -> None:
        self.device = device
        self.dtype = dtype
        self._tf32 = tf32
        before = _settings() if tf32 else {}
        if tf32:
            _compute_in_tf32()
        after = _settings() if tf32 else {}
        self._before: dict[str, Any] = {} if before == after else before
        said = {_MATMUL: "matrix products", _CONVOLUTION: "convolutions", _RECURRENT: "recurrent layers"}
        self.changes = tuple(f"TF32 for {said[name]}" for name in said if before.get(name) != after.get(name))

    def autocast(self) -> AbstractContextManager[Any]:
        """For the forward pass and the loss of each step."""
        return nullcontext() if self.dtype is None else autocast_for(self.device, self.dtype)

    def grad_scaler(self) -> Any:
        """For the backward pass and the optimiser: see ``grad_scaler_for``."""
        return grad_scaler_for(self.device, self.dtype or torch.float32)

    def restore(self) -> None:
        """Put the settings back as they were before. More than once is once."""
        before, self._before = self._before, {}
        for name, value in before.items():
            _set(name, value)

    def __enter__(self) -> MixedPrecision:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def __str__(self) -> str:
        if self.dtype is None:
            autocast = "no autocast"
        else:
            scaled = self.device.type == "cuda" and self.dtype is torch.float16
            scaling = ", gradients scaled" if scaled else ", no gradient scaling"
            autocast = f"autocast to {str(self.dtype).removeprefix('torch.')}{scaling}"
        kept = "TF32 was on already" if self._tf32 else "float32 is computed as before"
        return f"mixed precision on {self.device}: {autocast}; {'; '.join(self.changes) or kept}"


def setup_mixed_precision(
    device: str | torch.device | None = None, *, dtype: torch.dtype | None = None, tf32: bool = True
) -> MixedPrecision:
    """Set up mixed precision for ``device``, by default the CUDA device if there is one, else the CPU.

        precision = setup_mixed_precision()
        scaler = precision.grad_scaler()
        ...
        with precision.autocast():
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    What was done is logged (logger ``chirpid_patch``, INFO) and is ``str()`` of the result, whose ``restore`` undoes
    it. Without a CUDA device nothing is set, and there is no autocast unless ``dtype`` asks for it.

    Args:
        device: where the training runs.
        dtype: for autocast; not given, what is faster on the device. ``torch.float32`` for none.
        tf32: let CUDA devices that can (Ampere and later) multiply float32 matrices with 10 instead of 23 bits of
            mantissa. Results then differ from full float32 in the fourth digit.

    Raises:
        ValueError: ``device`` is a CUDA device and there is none.
    """
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {str(chosen)!r}: pass device='cpu', or one of this machine")
    picked = amp_dtype_for(chosen) if dtype is None else dtype
    set_up = MixedPrecision(chosen, None if picked is torch.float32 else picked, tf32=tf32 and _has_tf32(chosen))
    logger.info("%s", set_up)
    return set_up


def _has_tf32(device: torch.device) -> bool:
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip:
        return False
    return torch.cuda.get_device_capability(device)[0] >= _BF16_CAPABILITY


def _settings() -> dict[str, Any]:
    """The settings that this PyTorch has and tells."""
    return {name: value for name in _SETTINGS if (value := _get(name)) is not None}


def _get(name: str) -> Any:
    """A setting; None where PyTorch has none, or refuses because newer and older ones contradict each other."""
    try:
        if name == _PRECISION:
            return torch.get_float32_matmul_precision()
        return operator.attrgetter(name)(torch.backends)
    except (AttributeError, RuntimeError):
        return None


def _set(name: str, value: Any) -> None:
    if name == _PRECISION:
        torch.set_float32_matmul_precision(value)
        return
    owner, _, attribute = name.rpartition(".")
    setattr(operator.attrgetter(owner)(torch.backends), attribute, value)


def _compute_in_tf32() -> None:
    """Have CUDA compute float32 in TF32, so that older and newer settings agree where they did."""
    if _get(_PRECISION) == "highest":
        on_cpu = _get(_CPU_MATMUL)
        _set(_PRECISION, "high")
        if on_cpu is not None:
            _set(_CPU_MATMUL, on_cpu)
    if _get(_CUDNN) is False:
        _set(_CUDNN, True)
    for name in (_MATMUL, _CONVOLUTION, _RECURRENT):  # of a program that uses the newer settings itself
        if _get(name) not in (None, "tf32"):
            _set(name, "tf32")
