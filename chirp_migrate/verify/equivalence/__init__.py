"""Record the batches of both versions, and find the first difference between the trainings."""
