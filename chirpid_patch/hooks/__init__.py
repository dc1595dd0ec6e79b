"""Hooks that a trainer calls during a training, and a hook that measures waits, transfers and steps."""
