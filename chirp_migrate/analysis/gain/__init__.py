"""Find what the migration of a loader improves: batched reading, picklable objects, pinned transfers, or nothing."""
