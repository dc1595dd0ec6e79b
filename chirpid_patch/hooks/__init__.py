"""Hooks that a trainer calls while it trains, and the profiling that uses them (R-001).

The package may import all others; none imports it.
"""
