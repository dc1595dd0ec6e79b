"""Hooks that a trainer calls while it trains, and the profiling that uses them.

The package may import all others; none imports it.
"""
