"""What besides the machine a measurement depends on: packages and environment variables, for the JSON report."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any

__all__ = ["describe_environment"]

_PACKAGES = (
    "accelerate",
    "albumentations",
    "chirp-migrate",
    "h5py",
    "librosa",
    "lightning",
    "numpy",
    "opencv-python",
    "pandas",
    "pillow",
    "psutil",
    "pytorch-lightning",
    "scikit-learn",
    "scipy",
    "torch",
    "torchaudio",
    "torchvision",
    "transformers",
)
_VARIABLES = (
    "CUDA_",
    "GOMP_",
    "KMP_",
    "LD_PRELOAD",
    "MALLOC_",
    "MKL_",
    "NUMBA_",
    "NUMEXPR_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "TORCH",
)
"""Beginnings of the names of variables that change how fast, or what, PyTorch computes; none of them holds a secret."""


def describe_environment() -> dict[str, Any]:
    """``python`` (version, build, executable), ``packages`` (those installed that matter) and ``variables``.

    ``variables`` are the user's; each process of a verification has, above them, equal thread counts, hash seed and
    temporary folder.
    """
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": {"version": sys.version, "executable": sys.executable},
        "packages": packages,
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_VARIABLES)},
    }
