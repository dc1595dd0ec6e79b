"""What can go wrong in the child, for the user."""

from __future__ import annotations

__all__ = ["NothingToTune"]


class NothingToTune(Exception):
    """What was asked for gives no dataset that can be measured; the message is one sentence for the user."""
