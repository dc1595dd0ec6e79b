"""Named ranges in traces of ``torch.profiler`` and in NVTX traces."""

from __future__ import annotations

from typing import Any

import torch

from chirpid_patch.torch_private import profiler_enabled

#: Names of the ranges in the traces.
DATA_WAIT, TRANSFER, STEP = "chirpid: data wait", "chirpid: transfer", "chirpid: step"


class TraceRange:
    """A named range in ``torch.profiler`` traces, and optionally in NVTX traces.

    Unlike a ``with`` block, the range may begin in one function and end in another function.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorded: Any = None
        self._nvtx: int | None = None

    def begin(self, *, nvtx: bool) -> None:
        """Begin the range in ``torch.profiler`` if a profiler runs, and in NVTX if ``nvtx`` is True.

        If the range has begun already, the earlier range ends first.
        """
        self.end()
        if profiler_enabled():
            self._recorded = torch.autograd.profiler.record_function(self._name)
            self._recorded.__enter__()
        if nvtx:
            # range_start needs no nesting. Ranges of range_push and range_pop would have to nest with the user's
            # ranges.
            self._nvtx = torch.cuda.nvtx.range_start(self._name)

    def end(self) -> None:
        """End the range if it has begun."""
        if self._recorded is not None:
            self._recorded.__exit__(None, None, None)
            self._recorded = None
        if self._nvtx is not None:
            torch.cuda.nvtx.range_end(self._nvtx)
            self._nvtx = None
