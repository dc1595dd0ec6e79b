"""Describe the conditions of a measurement: machine, packages and environment variables."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

_CPU_INFO = Path("/proc/cpuinfo")
_PACKAGES = (
    "accelerate", "albumentations", "chirp-migrate", "chirpid-patch", "h5py", "librosa", "lightning", "numpy",
    "opencv-python", "pandas", "pillow", "psutil", "pytorch-lightning", "scikit-learn", "scipy", "torch", "torchaudio",
    "torchvision", "transformers",
)  # fmt: skip
_VARIABLES = (
    "CUDA_", "GOMP_", "KMP_", "LD_PRELOAD", "MALLOC_", "MKL_", "NUMBA_", "NUMEXPR_", "NVIDIA_", "OMP_", "OPENBLAS_",
    "PYTHON", "PYTORCH_", "TORCH",
)  # fmt: skip
"""Prefixes of environment variables that may change the speed or the results of PyTorch.

Variables with these prefixes contain no secrets, so their values may be reported.
"""


def describe_machine(threads: int) -> dict[str, Any]:
    """Return a description of the machine: processor, CPUs, GPU, system, and versions of PyTorch and Python.

    Args:
        threads: number of compute threads of PyTorch.
    """
    import torch

    from chirpid_patch.machine.cpus import usable_cpus

    return {
        "processor": _processor(),
        "usable_cpus": usable_cpus(),
        "torch": str(torch.__version__),  # converted, because it is a subclass of str
        "threads": threads,
        "accelerator": _accelerator(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _accelerator() -> str | None:
    """Return the name of the GPU, or the type of another accelerator such as ``"mps"``; None without an accelerator."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if current is None else current.type


def describe_environment() -> dict[str, Any]:
    """Return the versions of Python and of packages, and the environment variables that may change a measurement.

    The environment variables come from this process. The result does not contain the variables that ``verify`` sets in
    its child processes, such as the number of threads and the hash seed.
    """
    packages = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    return {
        "python": {"version": sys.version, "executable": sys.executable},
        "packages": packages,
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }


def machine_summary(machine: dict[str, Any]) -> str:
    """Return one line that describes the machine; ``machine`` is the result of :func:`describe_machine`."""
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
