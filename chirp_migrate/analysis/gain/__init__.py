"""What the migration of a loader buys: batched reading, picklable workers, pinned transfers, or nothing."""
