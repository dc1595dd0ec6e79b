"""A story as one HTML file."""
