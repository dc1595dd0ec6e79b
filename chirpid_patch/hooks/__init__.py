"""Hooks that a trainer calls while it trains, and a hook that measures waits, transfers and steps."""
