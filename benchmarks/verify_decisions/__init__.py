"""How often `verify` decides rightly, on pairs of processes recorded on this machine."""
