"""Replace the downloaded datasets of torchvision by datasets with generated samples.

All modules except ``datasets`` are modules of the installed torchvision. The ``__init__`` module of the installed
torchvision does not run, because it needs operators of CUDA.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from torchvision import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
