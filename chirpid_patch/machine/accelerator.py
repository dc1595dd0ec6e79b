"""Detection of a device to which pinned memory makes copies faster."""

from __future__ import annotations

import torch


def pinning_device() -> str | None:
    """Return the type of the device that copies from pinned memory ("cuda", …), or None. Apple's MPS does not."""
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if current is None or current.type == "mps" else current.type
