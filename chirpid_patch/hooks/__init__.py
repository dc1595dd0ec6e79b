"""What a trainer calls while it trains, and the profiling that hangs on it (R-001)."""
