"""Record the batches of the project before and after the migration, and find the first difference."""
