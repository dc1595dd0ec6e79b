"""Copies of both versions in separate folders."""
