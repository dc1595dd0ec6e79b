"""Time both versions in rounds of fresh processes, with zero-cost loading and simulated device steps."""
