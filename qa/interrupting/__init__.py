"""Runs of the command line killed, or with the disk full, at random: what they leave, and what the next one does."""
