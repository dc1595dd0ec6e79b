"""How much memory a training uses and may use, and what to do when it is short."""
