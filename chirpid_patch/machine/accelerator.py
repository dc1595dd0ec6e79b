"""Whether there is a device that pinned memory speeds copies to."""

from __future__ import annotations

import torch


def pinning_device() -> str | None:
    """Type of the device that copies from pinned memory ("cuda", …), or None. Apple's MPS does not."""
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if current is None or current.type == "mps" else current.type
