"""Migrate random programs, and run them before and after."""
