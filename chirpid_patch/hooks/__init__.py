"""What a trainer calls while it trains, and the profiling that hangs on it (R-001).

May import all others; none imports it.
"""
