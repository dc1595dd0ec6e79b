"""The fastest way to load, found by trying, and remembered."""
