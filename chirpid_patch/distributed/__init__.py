"""Training on several ranks (R-001)."""
