"""Child processes: what they print, how they take turns, how they end, and what machine they ran on."""
