"""What a measurement was taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["describe", "line", "usable_cpus"]

_CPU_INFO = Path("/proc/cpuinfo")


def usable_cpus() -> int:
    """CPUs that this process may use: its affinity and quota, not those of the machine."""
    from chirpid_patch.machine.cpus import usable_cpus as count  # takes PyTorch, which a look at the help does not need

    return count()


def describe(threads: int) -> dict[str, Any]:
    """Processor, usable CPUs, accelerator, torch, the compute threads it is given, Python and system."""
    import torch

    return {
        "processor": _processor(),
        "usable_cpus": usable_cpus(),
        "torch": str(torch.__version__),  # a kind of its own, which no document knows
        "threads": threads,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def line(machine: dict[str, Any]) -> str:
    """One line for a report."""
    device = machine["accelerator"] or "no GPU"
    return (
        f"{machine['processor']}, {machine['usable_cpus']} usable CPUs, {device}, torch {machine['torch']} "
        f"with {machine['threads']} threads, Python {machine['python']}, {machine['system']}"
    )


def _processor() -> str:
    if _CPU_INFO.is_file():
        for text in _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = text.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or os.environ.get("PROCESSOR_IDENTIFIER", "") or "unknown processor"
