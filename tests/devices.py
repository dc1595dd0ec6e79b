"""Devices beside the CPU that a run of the tests has."""

from __future__ import annotations

import sys

import pytest
import torch

_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

#: CUDA where this machine has it, and the device written in Python under ``--stand-in-device``.
AWAY = [pytest.param("cuda", marks=_cuda), *(["stand_in"] if "stand_in_device" in sys.modules else [])]
