"""Migrate PyTorch training backends to fast, worker-safe data loading, and verify the result."""

from __future__ import annotations

__version__ = "0.1.0"
