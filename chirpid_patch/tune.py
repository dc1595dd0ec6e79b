"""Deprecated: ``loader_speed`` has what was here, until the next release under both names."""

import sys
import warnings

from chirpid_patch.loader_speed import advice, diagnosis

__all__ = ["advice", "diagnosis"]

warnings.warn(
    f"{__name__} will not be found from the next release on: import from chirpid_patch.loader_speed.",
    DeprecationWarning,
    stacklevel=2,
)
sys.modules.update({f"{__name__}.advice": advice, f"{__name__}.diagnosis": diagnosis})
