"""What values names can have, what functions capture, and where both go."""
