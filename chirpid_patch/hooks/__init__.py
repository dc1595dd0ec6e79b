"""Hooks that a trainer calls while it trains, and a hook that measures waits, transfers and steps.

This package may import all other packages. No other package imports ``hooks``.
"""
