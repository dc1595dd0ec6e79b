"""Rounds of fresh processes, timed in turns; perfect loading, and simulated steps."""
