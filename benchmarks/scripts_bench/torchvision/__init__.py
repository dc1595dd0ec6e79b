"""torchvision whose downloaded datasets have made-up samples.

Everything but ``datasets`` is the installed torchvision. Its own ``__init__`` does not run: it needs operators of CUDA.
"""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

from torchvision import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
