"""Find the gain of migrating a loader: batched reading, picklable objects, pinned transfers, or nothing."""
