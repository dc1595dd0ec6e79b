"""Time a project before and after the migration, in new processes that take turns."""
