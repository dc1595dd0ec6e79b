"""Calls that build loaders, their roles, and hand-written loading."""
