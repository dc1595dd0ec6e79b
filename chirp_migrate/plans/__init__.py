"""What a run intends to do, as plain data: edits, hunks, findings and plans. It imports nothing but errors."""
