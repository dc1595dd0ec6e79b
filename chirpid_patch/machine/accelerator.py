"""A function that returns the type of an accelerator to which copies from pinned memory are faster."""

from __future__ import annotations

import torch


def pinning_device() -> str | None:
    """Return the type of the accelerator, such as "cuda"; None if no accelerator can copy from pinned memory.

    Apple's MPS cannot copy from pinned memory.
    """
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if current is None or current.type == "mps" else current.type
