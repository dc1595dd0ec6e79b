"""One image at several scales, and several models over one pass (R-003)."""
