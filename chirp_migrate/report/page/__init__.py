"""Render a report as one HTML file."""
