"""Child processes: their output, turns and exits, and the machine."""
