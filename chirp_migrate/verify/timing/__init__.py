"""Rounds of fresh processes, timed in turns; zero-cost loading, and simulated steps."""
