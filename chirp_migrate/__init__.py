"""Migrate PyTorch training backends to fast, worker-safe data loading, and prove the result."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
