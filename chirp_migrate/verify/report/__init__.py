"""A verification as text for a terminal, as JSON, and as plots."""
