"""What a run intends to do, as plain data: edits, hunks, findings and plans. It knows no other part of the tool."""
