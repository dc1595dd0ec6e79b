"""Migrate random programs, and run each program before and after its migration."""
